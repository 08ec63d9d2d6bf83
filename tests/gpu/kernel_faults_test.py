"""Does scripts/check-kernels find faults that nvcc compiles? kernel_faults.cu has one in each kernel.

  python3 kernel_faults_test.py --nvcc FILE --version VERSION [--tools FOLDER] [--save]

--save writes kernel_faults.txt: what cuobjdump prints of them, for check_kernels_test.py, which needs no nvcc.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

from check_kernels_test import FAULTS, ROOT, kernels_check

HERE = pathlib.Path(__file__).parent
ARCHITECTURES = ("sm_80", "sm_90a")


def expect(true, what, out):
    if not true:
        sys.exit(f"{what}\n{out}")


def compile_faults(nvcc, folder):
    """A build folder with a library of the kernels."""
    generate = [f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}" for arch in ARCHITECTURES]
    subprocess.run([nvcc, "-c", "-O3", "-std=c++20", *generate, "-o", folder / "kernel_faults.cu.o",
                    HERE / "kernel_faults.cu"], check=True)
    library = folder / "engine/cuda/libevalrun_cuda.a"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.unlink(missing_ok=True)
    subprocess.run(["ar", "qc", library, folder / "kernel_faults.cu.o"], check=True)
    return library


def save(library):
    """Without spaces that stand in columns, for sm_90a alone."""
    sass = subprocess.run(["cuobjdump", "-sass", "-arch", "sm_90a", library], capture_output=True, text=True, check=True)
    used = subprocess.run(["cuobjdump", "--dump-resource-usage", "-arch", "sm_90a", library], capture_output=True, text=True,
                          check=True)
    # NOPs fill up a function's end.
    sass = re.sub(r"\n.* NOP *;.*\n.*", "", sass.stdout)
    kept = [line for line in sass.splitlines() if re.search(r"code for|Function :|/\* 0x", line)]
    kept += ["== resources"] + [line for line in used.stdout.splitlines() if re.search("^arch = |Function|REG:", line)]
    kept = [" " * line.startswith((" ", "\t")) + " ".join(line.split()) for line in kept]
    (HERE / "kernel_faults.txt").write_text("\n".join(kept) + "\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--tools", default="")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    if not options.nvcc:
        print("skipped: there is no nvcc in this build, so it has no kernels")
        return
    tools = ["--tools", options.tools] if options.tools else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = compile_faults(options.nvcc, folder)
        if options.save:
            save(library)
            return
        cmake = folder / "CMakeFiles/3.25.1/CMakeCUDACompiler.cmake"
        cmake.parent.mkdir(parents=True)
        cmake.write_text(f'set(CMAKE_CUDA_COMPILER_VERSION "{options.version}")\n')
        table = folder / "kernels.txt"

        def check(*words):
            run = subprocess.run([ROOT / "scripts/check-kernels", "--table", table, *tools, *words, folder], capture_output=True,
                                 text=True, check=False)
            if run.stdout.startswith("skipped: "):
                print(run.stdout)
                sys.exit(0)
            return run.returncode, run.stdout + run.stderr

        code, out = check("--update")
        expect(code == 1, f"exit code {code}", out)
        faults = {line for line in out.splitlines() if line.startswith("fault: ")}
        for arch in ARCHITECTURES:
            for kernel, columns in FAULTS.items():
                said = {line for line in faults if line.startswith(f"fault: {kernel} ({arch}): ")}
                expect(len(said) == len(columns), f"{kernel} ({arch}): {len(said)} faults, expected {len(columns)}", out)
                for column, number in columns.items():
                    text = f"{'' if number is None else number} {kernels_check.SAYS[column]}"
                    expect(any(text in line for line in said), f"{kernel} ({arch}): '{text}' is not said", out)
        expect(len(faults) == sum(map(len, FAULTS.values())) * len(ARCHITECTURES), "a fault of nobody", out)

        rows = kernels_check.Table(table.read_text()).rows
        for arch in ARCHITECTURES:
            expect(rows[arch, "clean"]["threads"] == 128 and rows[arch, "spilled"]["threads"] == 1024, "launch bounds", out)
            expect(rows[arch, "spilled"]["registers"] <= 32, "registers", out)
            expect(rows[arch, "spilled"]["warps"] == 64 and rows[arch, "spinning"]["shared"] == 16, "occupancy", out)

        # A kernel has more registers than the table says.
        registers = rows["sm_90a", "clean"]["registers"]
        lower = re.sub(r"^(sm_90a +128 +)\d+(?=.* clean$)", rf"\g<1>{registers - 2}", table.read_text(), flags=re.M)
        table.write_text(lower)
        code, out = check()
        expect(code == 1 and f"differs: clean (sm_90a): registers {registers}, {registers - 2} in the table\n" in out,
               "more registers are not seen", out)
    print(f"{len(FAULTS)} kernels for {' and '.join(ARCHITECTURES)}: every fault was named")


if __name__ == "__main__":
    main(sys.argv[1:])
