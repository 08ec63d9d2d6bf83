"""scripts/check-kernels without nvcc: on machine code that was saved, on code written here, on tables."""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import kernels_check  # noqa: E402
import machine_code  # noqa: E402

# What cuobjdump printed of kernel_faults.cu for sm_90a, less its spaces; `kernel_faults_test.py --save` writes it.
SAVED = pathlib.Path(__file__).parent / "kernel_faults.txt"
# Of kernel_faults.cu: the columns that are not 0, and the number where it is known.
FAULTS = {
    "clean": {},
    "ahead": {},
    "serial_run": {"serial": 3},
    "serial_loop": {"serial": 1},
    "spilled": {"local": None, "spills": None},
    "local_array": {"local": None, "spills": None},
    "generic_load": {"generic": 1},
    "spinning": {"spins": 1},
}


def code(*lines):
    """Instructions: "NAME OPERANDS", "@P0 NAME ...", "... >2" signals scoreboard 2, "... <2" waits for it."""
    made = []
    for i, line in enumerate(lines):
        words = line.split()
        signals = [int(word[1:]) for word in words if word.startswith(">")]
        waits = sum(1 << int(word[1:]) for word in words if word.startswith("<"))
        words = [word for word in words if word[0] not in "<>"]
        guard = words.pop(0)[1:] if words[0].startswith("@") else None
        made.append(machine_code.Instruction(16 * i, guard, words[0], " ".join(words[1:]),
                                             signals[0] if signals else None, waits))
    return made


def at(i):
    return f"{16 * i:#x}"


class SerialLoads(unittest.TestCase):
    def places(self, *lines):
        return [address // 16 for address in machine_code.serial_loads(code(*lines))]

    def test_a_straight_run(self):
        turn = ["LDG.E R0, [R2.64] >0", "LDG.E R1, [R4.64] >1", "FMUL R0, R0, R1 <0 <1", "STG.E [R6.64], R0"]
        self.assertEqual(self.places(*turn, "EXIT"), [])
        self.assertEqual(self.places(*turn * 3, "EXIT"), [4, 8])  # the first load of a turn, not the second

    def test_loads_first(self):
        self.assertEqual(self.places("LDG R0, [R2] >0", "LDG R1, [R2] >1", "STG [R4], R0 <0", "STG [R4], R1 <1", "EXIT"), [])

    def test_a_load_that_is_under_way_hides_the_wait(self):
        self.assertEqual(self.places("LDG R0, [R2] >0", "LDG R1, [R2] >1", "STG [R4], R0 <0", "LDG R0, [R2] >0",
                                     "STG [R4], R1 <1", "EXIT"), [])

    def test_a_loop(self):
        loop = ["MOV R1, R1", "LDG R0, [R2] >0", "FMUL R0, R0, R0 <0", "STG [R4], R0", f"@P0 BRA {at(1)}", "EXIT"]
        self.assertEqual(self.places(*loop), [1])
        self.assertEqual(self.places(*loop[:4], f"@P0 BRA {at(5)}", "EXIT"), [])

    def test_a_loop_that_loads_ahead(self):
        self.assertEqual(self.places("LDG R0, [R2] >0", "MOV R1, R0 <0", "LDG R0, [R2] >0", "STG [R4], R1",
                                     f"@P0 BRA {at(1)}", "EXIT"), [])

    def test_a_store_that_waits_for_nothing(self):
        self.assertEqual(self.places("STG [R4], R9", "LDG R0, [R2] >0", "STG [R4], R9", "LDG R1, [R2] >1", "EXIT"), [])

    def test_a_store_before_the_wait(self):
        self.assertEqual(self.places("LDG R0, [R2] >0", "STG [R4], R9", "FADD R0, R0, R0 <0", "LDG R1, [R2] >0", "EXIT"), [])

    def test_an_address_that_was_loaded(self):
        self.assertEqual(self.places("LDG R0, [R2] >0", "LDG R1, [R0] <0 >1", "STG [R4], R1 <1", "EXIT"), [])

    def test_barriers_and_fences_begin_anew(self):
        for order in ("BAR.SYNC.DEFER_BLOCKING 0x0", "MEMBAR.SC.GPU", "ATOMG.E.ADD R1, [R2], R3", "ACQBULK"):
            self.assertEqual(self.places("LDG R0, [R2] >0", "STG [R4], R0 <0", order, "LDG R0, [R2] >0", "EXIT"), [], order)
        self.assertEqual(self.places("LDG R0, [R2] >0", "STG [R4], R0 <0", "BRA.DIV UR4, 0x40", "LDG R0, [R2] >0",
                                     "EXIT"), [3])

    def test_a_wait_for_some_of_the_loads(self):
        lines = ["LDG R0, [R2] >0", "LDG R1, [R2] >0", "DEPBAR.LE SB0, 0x1", "STG [R4], R0", "LDG R0, [R2] >1", "EXIT"]
        self.assertEqual(self.places(*lines), [])
        lines[2] = "DEPBAR.LE SB0, 0x0"
        self.assertEqual(self.places(*lines), [4])

    def test_other_memories_do_not_count(self):
        self.assertEqual(self.places("LDS R0, [R2] >0", "STS [R4], R0 <0", "LDS R0, [R2] >0", "STS [R4], R0 <0", "EXIT"), [])
        self.assertEqual(self.places("LDG R0, [R2] >0", "STS [R4], R0 <0", "LDG R0, [R2] >0", "STS [R4], R0 <0", "EXIT"), [])
        self.assertEqual(self.places("LDG R0, [R2] >0", "STG [R4], R0 <0", "LDGSTS [R1], [R2] >0", "EXIT"), [])

    def test_generic_accesses_do(self):
        self.assertEqual(self.places("LD.E R0, [R2] >0", "ST.E [R4], R0 <0", "LD.E R0, [R2] >0", "EXIT"), [2])

    def test_one_way_of_two(self):
        begin = ["LDG R0, [R2] >0", "FADD R0, R0, R0 <0", f"@P0 BRA {at(4)}", "STG [R4], R0"]
        self.assertEqual(self.places(*begin, "LDG R0, [R2] >0", "EXIT"), [4])
        self.assertEqual(self.places(*begin[:3], "EXIT", "LDG R0, [R2] >0", "EXIT"), [])

    def test_ways_meet_where_they_said(self):
        # BSYNC leads to where its BSSY said, not to what stands behind it.
        lines = ["LDG R0, [R2] >0", f"BSSY B0, {at(6)}", f"@P0 BRA {at(4)} <0", "STG [R4], R0", "BSYNC B0",
                 "LDG R1, [R2] >0", "LDG R2, [R2] >0", "EXIT"]
        self.assertEqual(self.places(*lines), [6])

    def test_functions_within_the_code(self):
        lines = ["LDG R0, [R2] >0", "STG [R4], R0 <0", f"CALL.REL.NOINC {at(5)}", "LDG R1, [R2] >0", "EXIT",
                 "LDG R0, [R2] >0", "STG [R4], R0 <0", "LDG R0, [R2] >0", "RET.REL.NODEC R4 0x0"]
        self.assertEqual(self.places(*lines), [3, 7])

    def test_a_jump_by_a_register(self):
        lines = ["LDG R0, [R2] >0", "STG [R4], R0 <0", "BRX R10 -0x50", "EXIT", "LDG R0, [R2] >0", "EXIT"]
        self.assertEqual(self.places(*lines), [4])


class SavedCode(unittest.TestCase):
    def setUp(self):
        sass, _, resources = SAVED.read_text().partition("== resources\n")
        self.functions = machine_code.read_functions(sass.splitlines())
        self.resources = machine_code.read_resources(resources.splitlines())

    def test_each_fault_is_named_and_no_other(self):
        found = {kernel.name: kernel for kernel in machine_code.kernels(self.functions, self.resources, {})}
        self.assertEqual(found.keys(), FAULTS.keys())
        for name, kernel in found.items():
            self.assertEqual(kernel.arch, "sm_90a")
            self.assertGreater(kernel.instructions, 5)
            for column in kernels_check.FAULTS:
                number, expected = getattr(kernel, column), FAULTS[name].get(column, 0)
                if expected is None:
                    self.assertGreater(number, 0, f"{name} {column}")
                else:
                    self.assertEqual(number, expected, f"{name} {column}")

    def test_what_is_not_understood_is_an_error(self):
        lines = SAVED.read_text().partition("== resources\n")[0].splitlines()
        with self.assertRaisesRegex(machine_code.Unreadable, "no instruction of .* was understood"):
            machine_code.read_functions([line for line in lines if "; /* 0x" not in line])
        silent = [" /* 0x000fffffffffffff */" if line.startswith(" /* 0x") else line for line in lines]
        with self.assertRaisesRegex(machine_code.Unreadable, "signals no scoreboard"):
            machine_code.read_functions(silent)
        with self.assertRaisesRegex(machine_code.Unreadable, "no line of resources"):
            machine_code.kernels(self.functions, {}, {})


class Numbers(unittest.TestCase):
    def test_occupancy(self):
        for (arch, threads, registers, shared), expected in {
                ("sm_90a", 128, 166, 0): (3, 12),  # by registers
                ("sm_90a", 1024, 32, 0): (2, 64),
                ("sm_80", 1024, 33, 0): (1, 32),
                ("sm_90a", 256, 255, 0): (1, 8),
                ("sm_80", 64, 16, 0): (32, 64),  # by warps
                ("sm_80", 32, 16, 0): (32, 32),  # by blocks
                ("sm_80", 32, 80, 0): (24, 24),  # four warps at a time
                ("sm_80", 128, 32, 48 << 10): (3, 12),  # by shared memory
                ("sm_90a", 128, 32, 48 << 10): (4, 16),
                ("sm_89", 128, 40, 0): (12, 48),
                ("sm_90a", 0, 128, 0): (0, 16),  # a block's threads are not known
                ("sm_35", 128, 40, 0): (0, 0),
        }.items():
            self.assertEqual(machine_code.occupancy(arch, threads, registers, shared), expected, (arch, threads, registers))

    def test_shared_memory_of_the_system(self):
        for (arch, used), own in {("sm_80", 1040): 1040, ("sm_90a", 1040): 16, ("sm_90a", 1024): 0, ("sm_90a", 0): 0,
                                  ("sm_120", 3000): 1976}.items():
            self.assertEqual(machine_code.own_shared(arch, {"SHARED": used}), own, arch)

    def test_names(self):
        self.assertEqual(machine_code.short_name("void a::b::(anonymous namespace)::c<(a::Kind)2, true>(a::D<1>, int)"),
                         "c<(Kind)2, true>")
        self.assertEqual(machine_code.short_name("clean(float const*)"), "clean")
        one, two = (f"_ZN4that44_GLOBAL__N__06b3d03c_9_{name}_cu_58fb6f4f3runEv" for name in ("first_one", "other_one"))
        self.assertEqual(set(machine_code.names_of([one, two]).values()), {"run [first_one.cu]", "run [other_one.cu]"})
        self.assertEqual(machine_code.names_of([one]), {one: "run"})

    def test_launch_bounds_of_what_is_no_cubin(self):
        for text in (b"", b"\x7fELF\x01"):
            with self.assertRaises(machine_code.Unreadable):
                machine_code.read_launch_bounds(text)


def kernel(name="k", arch="sm_80", **columns):
    numbers = {"threads": 128, "registers": 40, "shared": 0, "blocks": 12, "warps": 48}
    numbers.update({column: 0 for column in kernels_check.FAULTS})
    numbers.update(columns)
    return machine_code.Kernel(arch=arch, name=name, **numbers)


class Tables(unittest.TestCase):
    def table(self, kernels, allow=()):
        table = kernels_check.Table()
        table.allowed = list(allow)
        return kernels_check.Table(table.text(kernels, "13.0.88"))

    def check(self, table, *kernels, nvcc="13.0.88"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            result = kernels_check.check(list(kernels), table, nvcc)
        return result, out.getvalue()

    def test_what_is_written_is_read(self):
        kernels = [kernel("a<1, 2>"), kernel("b", "sm_90a", threads=0, blocks=0, shared=7)]
        allow = [("b*", "generic", "pointers | of two memories")]
        table = self.table(kernels, allow)
        self.assertEqual(table.nvcc, "13.0.88")
        self.assertEqual(table.allowed, allow)
        for one in kernels:
            self.assertEqual(table.rows[one.arch, one.name],
                             {column: getattr(one, column) for column in kernels_check.COLUMNS})
        for bad in ("sm_80 1 2 3", "allow | a | registers | why", "allow | a | serial |", "nvcc"):
            with self.assertRaisesRegex(machine_code.Unreadable, "line 1 "):
                kernels_check.Table(bad)

    def test_all_is_well(self):
        code, out = self.check(self.table([kernel()]), kernel())
        self.assertEqual((code, out), (0, "1 kernels for sm_80: 0 faults, 0 differences from the table\n"))

    def test_a_number_that_differs(self):
        for column in kernels_check.NUMBERS:
            code, out = self.check(self.table([kernel()]), kernel(**{column: 41}))
            self.assertEqual(code, 1)
            self.assertIn(f"differs: k (sm_80): {column} 41, ", out)
            self.assertIn("scripts/check-kernels --update", out)
            code, out = self.check(self.table([kernel()]), kernel(**{column: 41}), nvcc="13.1.1")
            self.assertEqual(code, 0)
            self.assertIn(f"note: k (sm_80): {column} 41, ", out)
            self.assertIn("note: compiled by nvcc 13.1.1, the table is of 13.0.88", out)

    def test_kernels_that_come_and_go(self):
        code, out = self.check(self.table([kernel(), kernel("old")]), kernel(), kernel("new"))
        self.assertEqual(code, 1)
        self.assertIn("differs: new (sm_80): not in the table\n", out)
        self.assertIn("differs: old (sm_80): in the table, not in the build\n", out)

    def test_other_architectures(self):
        code, out = self.check(self.table([kernel(), kernel(arch="sm_90a")]), kernel(), kernel(arch="sm_120"))
        self.assertEqual(code, 0)
        self.assertIn("note: sm_120 is in the build only", out)
        self.assertIn("note: sm_90a is in the table only", out)
        code, out = self.check(self.table([kernel()]), kernel(), kernel(arch="sm_120", spills=2))
        self.assertEqual(code, 1)
        self.assertIn("fault: k (sm_120): 2 loads and stores of local memory\n", out)

    def test_a_fault_fails_whatever_the_table_says(self):
        for column in kernels_check.FAULTS:
            bad = kernel(**{column: 2, "places": (16, 32) if column == "serial" else ()})
            for nvcc in ("13.0.88", "12.8.1"):
                code, out = self.check(self.table([bad]), bad, nvcc=nvcc)
                self.assertEqual(code, 1, out)
                self.assertIn(f"fault: k (sm_80): 2 {kernels_check.SAYS[column]}", out)
        self.assertIn("(at 0x10, 0x20)", out)

    def test_what_is_allowed(self):
        allow = [("k<*>", "serial", "once, at loading")]
        table = self.table([kernel("k<1>", serial=2)], allow)
        self.assertEqual(self.check(table, kernel("k<1>", serial=2))[0], 0)
        code, out = self.check(table, kernel("k<1>", serial=3))
        self.assertEqual(code, 1)
        self.assertIn("fault: k<1> (sm_80): 3 loads that begin only when an earlier one was waited for and stored, 2 in the "
                      "table", out)
        self.assertEqual(self.check(table, kernel("k<1>", serial=3), nvcc="12.8.1")[0], 0)
        self.assertIn("differs: k<1> (sm_80): serial 1, 2 in the table", self.check(table, kernel("k<1>", serial=1))[1])
        code, out = self.check(table, kernel("k<1>", serial=2, generic=1))
        self.assertIn("fault: k<1> (sm_80): 1 loads, stores or atomics", out)
        code, out = self.check(self.table([kernel()], allow), kernel())
        self.assertEqual(code, 1)
        self.assertIn("allow | k<*> | serial: no kernel needs it", out)

    def test_before_and_after(self):
        before = [kernel("norm<1>", registers=30, serial=16), kernel("norm<2>", serial=8), kernel("other")]
        lines = kernels_check.comparison(before, [kernel("norm", blocks=0, warps=0)], ["no*"])
        self.assertEqual(lines[2:], [
            "| `norm` | before | 2 | 30 to 40 | 48 | - | 0 | 0 | 0 | 0 | 8 to 16 |",
            "| `norm` | after | 1 | 40 | - | - | 0 | 0 | 0 | 0 | 0 |"])

    def test_the_committed_table_is_well_formed(self):
        table = kernels_check.Table((ROOT / "tests/gpu/kernels.txt").read_text())
        self.assertRegex(table.nvcc, r"^\d+\.\d+\.\d+$")
        self.assertEqual({arch for arch, _ in table.rows}, {"sm_80", "sm_90a"})
        for (arch, name), row in table.rows.items():
            self.assertGreater(row["registers"], 0)
            for column in kernels_check.FAULTS:
                self.assertTrue(row[column] == 0 or table.allows(name, column), f"{name} ({arch}) {column}")


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.table = self.folder / "kernels.txt"

    def write(self, name, text, program=False):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if program else 0o644)
        return path

    def build(self, version="13.0.88", member="row_ops.cu.o"):
        """A build folder as far as the script looks at it."""
        self.write("CMakeFiles/3.25.1/CMakeCUDACompiler.cmake",
                   f'set(CMAKE_CUDA_COMPILER "/nowhere/nvcc")\nset(CMAKE_CUDA_COMPILER_VERSION "{version}")\n')
        self.library(member)

    def library(self, member):
        library = self.folder / "engine/cuda/libevalrun_cuda.a"
        library.parent.mkdir(parents=True)
        subprocess.run(["ar", "qc", library, self.write(member, "")], check=True)

    def tools(self, cuobjdump):
        self.write("tools/nvdisasm", "#!/bin/sh\n", program=True)
        self.write("tools/cuobjdump", "#!/bin/sh\n" + cuobjdump, program=True)
        return "--tools", str(self.folder / "tools")

    def saved(self):
        """A cuobjdump that knows the saved code."""
        sass, _, resources = SAVED.read_text().partition("== resources\n")
        return self.tools(f"case $1 in -sass) cat '{self.write('sass.txt', sass)}' ;; --dump-resource-usage) "
                          f"cat '{self.write('resources.txt', resources)}' ;; esac\n")

    def run_script(self, *options, **env):
        run = subprocess.run([ROOT / "scripts/check-kernels", "--table", self.table, *options, self.folder],
                             capture_output=True, text=True, env={**os.environ, **env}, check=False)
        return run.returncode, run.stdout + run.stderr

    def test_without_a_build(self):
        code, out = self.run_script()
        self.assertEqual(code, 7)
        self.assertIn("is not there", out)

    def test_without_nvcc(self):
        self.library("no_cuda.cpp.o")
        expected = (0, "skipped: there is no nvcc in this build, so it has no kernels\n")
        self.assertEqual(self.run_script(*self.tools("exit 255\n")), expected)
        # A folder that was configured with nvcc before.
        self.write("CMakeFiles/3.25.1/CMakeCUDACompiler.cmake", 'set(CMAKE_CUDA_COMPILER_VERSION "13.0.88")\n')
        self.assertEqual(self.run_script(*self.tools("exit 255\n")), expected)

    def test_without_tools(self):
        self.build()
        bare = self.write("bin/none", "")
        for tool in ("bash", "env", "dirname", "sed", "ar", "cat"):
            bare.with_name(tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())
        code, out = self.run_script(PATH=str(bare.parent), EVALRUN_HOME=str(self.folder))
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"^skipped: there are no cuobjdump and nvdisasm \(.*scripts/get-cuda-tools\)")
        code, out = self.run_script("--tools", str(self.folder / "bin"))
        self.assertEqual(code, 2)
        self.assertIn("does not have cuobjdump", out)

    def test_a_cuobjdump_that_fails(self):
        self.build()
        code, out = self.run_script(*self.tools("echo 'not for me' >&2; exit 1\n"))
        self.assertEqual(code, 7, out)
        self.assertRegex(out, "error: .*exit code 1\nnot for me")
        code, out = self.run_script(*self.tools("exit 0\n"))
        self.assertEqual(code, 7, out)
        self.assertIn("no machine code in", out)

    def test_faults_of_saved_code(self):
        self.build()
        code, out = self.run_script("--update", *self.saved())
        self.assertEqual(code, 1, out)
        faults = [line for line in out.splitlines() if line.startswith("fault: ")]
        self.assertEqual(len(faults), sum(map(len, FAULTS.values())), out)
        for name, columns in FAULTS.items():
            for column in columns:
                self.assertTrue(any(f" {name} (sm_90a): " in line and kernels_check.SAYS[column] in line for line in faults), out)
        self.assertIn(f"{len(FAULTS)} kernels for sm_90a: {len(faults)} faults, 0 differences", out)

    def test_registers_above_the_table(self):
        self.build()
        tools = self.saved()
        self.run_script("--update", *tools)
        table = kernels_check.Table(self.table.read_text())
        registers = table.rows["sm_90a", "clean"]["registers"]
        kernels = machine_code.kernels(
            machine_code.read_functions((self.folder / "sass.txt").read_text().splitlines()),
            machine_code.read_resources((self.folder / "resources.txt").read_text().splitlines()), {})
        next(k for k in kernels if k.name == "clean").registers -= 2
        self.table.write_text(table.text(kernels, table.nvcc))
        code, out = self.run_script(*tools)
        self.assertEqual(code, 1)
        self.assertIn(f"differs: clean (sm_90a): registers {registers}, {registers - 2} in the table\n", out)

    def test_an_update_without_all_architectures(self):
        self.build()
        self.table.write_text(kernels_check.Table().text([kernel()], "13.0.88"))
        before = self.table.read_text()
        code, out = self.run_script("--update", *self.saved())
        self.assertEqual((code, self.table.read_text()), (7, before))
        self.assertIn("the table has sm_80, this build has not", out)

    def test_a_list(self):
        self.build()
        code, out = self.run_script("--list", "--kernels", "serial*", *self.saved())
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[-1] for line in out.splitlines()], ["kernel", "serial_loop", "serial_run"])


if __name__ == "__main__":
    unittest.main()
