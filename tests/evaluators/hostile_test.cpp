// Programs that attack the harness, the machine or the verdict. Each states what must come of it;
// "passed" where the program counts its own successes and the test asks for none.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/base/text.h"
#include "tests/evaluators/code_test.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using evaluators::ProgramResult;

struct Hostile {
  const char* name;
  const char* language;
  const char* code;  // of the whole function; CANARY is a file outside that anybody may write
  std::vector<std::string> statuses;
  const char* detail = "";  // "" = any
  bool suspicious = false;
  double seconds = 2;  // more where a limit other than time is to be met, also on a busy machine
};

// Functions that try everything in `attempts` and count what succeeded; the test wants none.
#define PYTHON_ATTEMPTS(lines)                                                           \
  "import os, sys, ctypes, socket, resource, signal\n"                                   \
  "libc = ctypes.CDLL(None, use_errno=True)\n"                                           \
  "def done(code):\n    if code != 0: raise OSError('refused')\n"                        \
  "def add(a, b):\n    good = 0\n    for attempt in [" lines                             \
  "]:\n        try:\n            attempt()\n            good += 1\n            "         \
  "print('did', attempt.__code__.co_firstlineno)\n        except (OSError, ValueError, " \
  "PermissionError):\n            pass\n    return a + b if good == 0 else -1\n"

std::vector<Hostile> attacks_on_resources() {
  return {
      {"ForkBomb",
       "python",
       "import os\ndef add(a, b):\n    while True:\n        try:\n            os.fork()\n        "
       "except "
       "OSError:\n            pass\n",
       {"timeout"}},
      {"ThreadBomb",
       "python",
       "import threading, time\ndef add(a, b):\n    ts = []\n    try:\n        while True:\n       "
       "     t "
       "= threading.Thread(target=time.sleep, args=(99,))\n            t.start()\n            "
       "ts.append(t)\n    except RuntimeError:\n        pass\n    assert len(ts) < 64\n    for t "
       "in "
       "ts:\n        t.join()\n",
       {"timeout", "memory"}},
      {"MemoryHog",
       "python",
       "def add(a, b):\n    x = []\n    while True:\n        x.append(bytearray(10**7))\n",
       {"memory"},
       "",
       false,
       15},
      {"MemoryHogOfManyProcesses",
       "python",
       "import os, time\ndef add(a, b):\n    for i in range(20):\n        if os.fork() == 0:\n     "
       "       x = "
       "bytearray(2 * 10**8)\n            time.sleep(99)\n    time.sleep(99)\n",
       {"memory"},
       "all processes together",
       false,
       15},
      {"SharedMapping",
       "python",
       "import mmap\ndef add(a, b):\n    m = mmap.mmap(-1, 3 * 2**30)\n    m.write(b'x' * 2**30)\n",
       {"memory"},
       "",
       false,
       15},
      {"MemoryFile",
       "python",
       "import os\ndef add(a, b):\n    os.memfd_create('x')\n    return a + b\n",
       {"failed"},
       "exception"},
      {"ZipBomb",
       "python",
       "import zlib\ndef add(a, b):\n    z = zlib.compress(bytes(10**8))\n    return "
       "len([zlib.decompress(z) for _ in range(30)])\n",
       {"memory"},
       "",
       false,
       15},
      {"EndlessRecursion",
       "python",
       "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b):\n    return add(a, b)\n",
       {"failed", "memory", "timeout"}},
      {"EndlessLoop",
       "python",
       "def add(a, b):\n    while True: pass\n",
       {"timeout"},
       "wall clock"},
      {"Sleep",
       "python",
       "import time\ndef add(a, b):\n    time.sleep(9999)\n",
       {"timeout"},
       "wall clock"},
      {"IgnoresSignals",
       "python",
       "import signal\ndef add(a, b):\n    for s in range(1, 65):\n        try: signal.signal(s, "
       "signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    while True: pass\n",
       {"timeout"},
       "wall clock"},
      {"EndlessOutput",
       "python",
       "def add(a, b):\n    while True: print('x' * 1000)\n",
       {"output_limit"}},
      {"EndlessErrors",
       "python",
       "import sys\ndef add(a, b):\n    while True: print('x' * 1000, file=sys.stderr)\n",
       {"output_limit"}},
      {"ControlFlood",
       "python",
       "import os\ndef add(a, b):\n    while True: os.write(3, b'x' * 1000)\n",
       {"output_limit"},
       "control channel"},
      {"HugeFile",
       "python",
       "def add(a, b):\n    with open('/tmp/x', 'wb') as f:\n        while True: f.write(b'x' * "
       "2**20)\n",
       {"output_limit"},
       "file size"},
      {"SparseFile",
       "python",
       "def add(a, b):\n    with open('/tmp/x', 'wb') as f: f.truncate(2**40)\n    return a + b\n",
       {"output_limit"},
       "file size"},
      {"FullTmp",
       "python",
       "def add(a, b):\n    for i in range(99):\n        with open('/tmp/%d' % i, 'wb') as f: "
       "f.write(b'x' * 15 * 2**20)\n    return a + b\n",
       {"failed"},
       "exception"},
      {"FullShm",
       "python",
       "def add(a, b):\n    with open('/dev/shm/x', 'wb') as f: f.write(b'x' * 12 * 2**20)\n    "
       "return a + "
       "b\n",
       {"failed"},
       "exception"},
  };
}

std::vector<Hostile> attacks_on_the_machine() {
  return {
      {"WritesOutside",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: open('CANARY', 'w'), lambda: open('/usr/x', 'w'), lambda: open('/etc/passwd', "
           "'a'), "
           "lambda: open('/x', 'w'), lambda: open('/dev/x', 'w'), lambda: open('/box/x', 'w'), "
           "lambda: "
           "open('/hx/x', 'w'), lambda: open('/proc/sys/kernel/hostname', 'w'), lambda: "
           "open('/proc/sysrq-trigger', 'w'), lambda: os.mkdir('/tmp/../x')"),
       {"passed"}},
      {"RemovesEverything",
       "python",
       "import os, shutil\ndef add(a, b):\n    for p in ['/usr/bin', '/etc', '/hx', '/box', "
       "'/tool']:\n"
       "        shutil.rmtree(p, ignore_errors=True)\n    ok = os.path.exists('/usr/bin/python3') "
       "and "
       "os.path.exists('/etc/passwd')\n    return a + b if ok else -1\n",
       {"passed"}},
      {"ReadsSecrets",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: open('CANARY').read(), lambda: open('/etc/shadow').read(), lambda: "
           "os.listdir('/root'), "
           "lambda: os.listdir('/home'), lambda: os.listdir('/var'), lambda: os.listdir('/run'), "
           "lambda: "
           "os.listdir('/sys'), lambda: open('/proc/1/environ').read(), lambda: "
           "open('/proc/self/mem'), "
           "lambda: open('/dev/sda'), lambda: open('/dev/kmsg'), lambda: open('/proc/kcore')"),
       {"passed"}},
      {"LinksOut",
       "python",
       "import os\n" PYTHON_ATTEMPTS(
           "lambda: (os.symlink('CANARY', '/tmp/l'), open('/tmp/l').read()), lambda: "
           "(os.symlink('/proc/1/root/etc/shadow', '/tmp/m'), open('/tmp/m').read()), lambda: "
           "open('../' * "
           "40 + 'CANARY').read(), lambda: os.link('/usr/bin/env', '/tmp/n')"),
       {"passed"}},
      {"Environment",
       "python",
       "import os\ndef add(a, b):\n    extra = set(os.environ) - {'PATH', 'HOME', 'LANG', "
       "'LC_CTYPE', "
       "'PWD'}\n    print(extra)\n    return a + b if not extra else -1\n",
       {"passed"}},
      {"Network",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: socket.create_connection(('127.0.0.1', 22), 1), lambda: "
           "socket.socket(socket.AF_INET6), "
           "lambda: socket.create_connection(('169.254.169.254', 80), 1), lambda: "
           "socket.getaddrinfo('debian.org', 80), lambda: socket.socket(socket.AF_NETLINK, "
           "socket.SOCK_RAW), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), lambda: "
           "socket.socket(socket.AF_INET, socket.SOCK_DGRAM), lambda: socket.socket(40, "
           "socket.SOCK_STREAM), lambda: "
           "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')"),
       {"passed"}},
      {"KillsParent",
       "python",
       "import os, signal\ndef add(a, b):\n    for pid in (1, os.getppid()):\n        for s in (9, "
       "19, "
       "15):\n            try: os.kill(pid, s)\n            except OSError: pass\n    return a + "
       "b\n",
       {"passed"}},
      {"KillsEverybody",
       "python",
       "import os\ndef add(a, b):\n    os.kill(-1, 9)\n    return a + b\n",
       {"passed", "failed"}},
      {"Tracing",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: done(libc.ptrace(16, 1, 0, 0)), lambda: done(libc.ptrace(16, os.getppid(), "
           "0, 0)), lambda: done(libc.process_vm_readv(1, 0, 0, 0, 0, 0)), lambda: "
           "open('/proc/1/mem', 'r+b')"),
       {"passed"}},
      {"Namespaces",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: done(libc.unshare(0x10000000)), lambda: done(libc.unshare(0x20000)), lambda: "
           "done(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)), lambda: "
           "done(libc.umount2(b'/usr', 2)), "
           "lambda: os.chroot('/tmp'), lambda: os.setuid(0), lambda: os.setgid(0), lambda: "
           "os.mknod('/tmp/d', 0o60666, 2049), lambda: done(libc.sethostname(b'x', 1)), lambda: "
           "done(min(0, libc.syscall(425, 8, 0))), lambda: done(min(0, libc.syscall(321, 0, 0, "
           "0))), "
           "lambda: done(min(0, libc.syscall(56, 0x10000011, 0, 0, 0, 0)))"),
       {"passed"}},
      {"SetuidPrograms",
       "python",
       "import os, shutil, subprocess\ndef add(a, b):\n    shutil.copy('/usr/bin/id', '/tmp/id')\n "
       "   "
       "os.chmod('/tmp/id', 0o6755)\n    who = subprocess.run(['/tmp/id'], "
       "capture_output=True).stdout\n"
       "    return a + b if who and b'uid=0' not in who else -1\n",
       {"passed"}},
      {"RaisesLimits",
       "python",
       PYTHON_ATTEMPTS(
           "lambda: resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999)), lambda: "
           "resource.setrlimit(resource.RLIMIT_AS, (-1, -1)), lambda: "
           "resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999)), lambda: os.nice(-5), lambda: "
           "resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))"),
       {"passed"}},
      {"Daemon",
       "python",
       "import os, time\ndef add(a, b):\n    if os.fork() == 0:\n        os.setsid()\n        if "
       "os.fork() "
       "== 0:\n            while True: time.sleep(1)\n        os._exit(0)\n    return a + b\n",
       {"passed"}},
  };
}

std::vector<Hostile> attacks_on_compilers() {
  return {
      {"IncludesShadow",
       "cpp",
       "#include \"/etc/shadow\"\nint add(int a,int b){return a+b;}\n",
       {"compile_error"}},
      {"IncludesZero",
       "cpp",
       "#include \"/dev/zero\"\nint add(int a,int b){return a+b;}\n",
       {"compile_error"}},
      {"IncbinCanary",
       "cpp",
       "asm(\".section .rodata\\n.incbin \\\"CANARY\\\"\\n.previous\");\nint add(int a,int "
       "b){return a+b;}\n",
       {"compile_error"}},
      {"GiantArray",
       "cpp",
       "char giant[] = {[3000000000] = 1};\nint add(int a,int b){return a+b+giant[7];}\n",
       {"compile_error"}},
      {"TemplateBomb",
       "cpp",
       "template<class A, int n> struct T { T<T<A, n>, n - 1> l; T<T<T<A, n>, 1>, n - 1> r; };\n"
       "T<int, 500> bomb;\nint add(int a,int b){return a+b;}\n",
       {"compile_error"}},
  };
}

std::vector<Hostile> attacks_on_verdicts() {
  return {
      // The driver's own names hold nothing of use.
      {"SearchForTheNumberInTheDriver",
       "python",
       "import sys\ndef add(a, b):\n    g = sys.modules['__main__'].__dict__\n    return a + b if "
       "not "
       "[n for n in ('_code', '_sys', '_names', '_name', '_os') if n in g] else -1\n",
       {"passed"},
       "",
       true},
      {"PrintsPassedAndExits",
       "python",
       "import sys\nprint('1 passed')\nprint('PASSED')\nsys.exit(0)\ndef add(a, b): pass\n",
       {"failed"},
       "early_exit"},
      {"ExitInFunction",
       "python",
       "import os\ndef add(a, b):\n    os._exit(0)\n",
       {"failed"},
       "early_exit"},
      {"RaisesSystemExit",
       "python",
       "def add(a, b):\n    raise SystemExit(0)\n",
       {"failed"},
       "early_exit"},
      {"AtExit",
       "python",
       "import atexit, os\natexit.register(lambda: os._exit(0))\ndef add(a, b):\n    return 0\n",
       {"failed"},
       "early_exit"},
      {"ExceptHook",
       "python",
       "import sys, os\nsys.excepthook = lambda *x: os._exit(0)\ndef add(a, b):\n    return 0\n",
       {"failed"},
       "early_exit"},
      {"ExecTrue",
       "python",
       "import os\ndef add(a, b):\n    os.execv('/usr/bin/true', ['true'])\n",
       {"failed"},
       "early_exit"},
      {"GuessesNonce",
       "python",
       "import os\ndef add(a, b):\n    os.write(3, b'0' * 32)\n    os._exit(0)\n",
       {"failed"},
       "tampering",
       true},
      {"ReplacesCheck",
       "python",
       "import builtins\nbuiltins.AssertionError = int\ndef check(f): pass\ndef add(a, b):\n    "
       "return 0\n",
       {"failed"}},
      {"ReadsItsSource",
       "python",
       "import inspect, re, os, glob\ndef add(a, b):\n    text = ''\n    for f in "
       "glob.glob('/tmp/*') + "
       "glob.glob('/box/*') + ['/proc/self/cmdline', '/dev/stdin']:\n        try: text += "
       "open(f).read()\n        except OSError: pass\n    try: text += inspect.getsource(add)\n    "
       "except "
       "OSError: pass\n    found = re.findall('[0-9a-f]{32}', text)\n    if found: os.write(3, "
       "found[0].encode())\n    os._exit(0)\n",
       {"failed"},
       "early_exit"},
      // The honest limit: passes, and is flagged.
      {"AlwaysEqual",
       "python",
       "class E(int):\n    def __eq__(self, other): return True\ndef add(a, b):\n    return E(7)\n",
       {"passed"},
       "",
       true},
  };
}

std::vector<Hostile> attacks_on_other_languages() {
  return {
      {"CppExit",
       "cpp",
       "#include <stdlib.h>\nint add(int a,int b){ exit(0); }\n",
       {"failed"},
       "early_exit"},
      {"CppStaticConstructor",
       "cpp",
       "#include <unistd.h>\nstruct S{S(){_exit(0);}} s;\nint add(int a,int b){return 0;}\n",
       {"failed"},
       "early_exit"},
      {"CppDefinesMain",
       "cpp",
       "int add(int a,int b){return 0;}\nint main(){return 0;}\n#define main other\n",
       {"failed", "compile_error"}},
      {"CppNdebug",
       "cpp",
       "#define NDEBUG\nint add(int a,int b){return 0;}\n",
       {"failed"},
       "assertion"},
      {"CppRecursion",
       "cpp",
       "int deep(volatile int*p){volatile int x[99]; x[0]=*p; return deep(x)+x[1];}\nint add(int "
       "a,int "
       "b){volatile int z=a; return deep(&z);}\n",
       {"failed"},
       "signal 11"},
      {"CppMemory",
       "cpp",
       "#include <vector>\nint add(int a,int b){std::vector<char*> v; for(;;){v.push_back(new "
       "char[10000000]());}}\n",
       {"memory"},
       "",
       false,
       15},
      {"JavaExit",
       "java",
       "class Solution { public int add(int a, int b) { System.exit(0); return 0; } }\n",
       {"failed"},
       "early_exit"},
      {"JavaHalt",
       "java",
       "class Solution { public int add(int a, int b) { Runtime.getRuntime().halt(0); return 0; } "
       "}\n",
       {"failed"},
       "early_exit"},
      {"JavaMemory",
       "java",
       "class Solution { public int add(int a, int b) { List<byte[]> x = new ArrayList<>(); while "
       "(true) "
       "x.add(new byte[10000000]); } }\n",
       {"memory"},
       "",
       false,
       15},
      {"JavaThreadStillRuns",
       "java",
       "class Solution { public int add(int a, int b) { new Thread(() -> { while (true) { } "
       "}).start(); "
       "return a + b; } }\n",
       {"passed"}},
      {"JavaChildProcess",
       "java",
       "class Solution { public int add(int a, int b) { try { Runtime.getRuntime().exec(\"sleep "
       "999\"); } "
       "catch (java.io.IOException e) { } return a + b; } }\n",
       {"passed"}},
      {"GoExit",
       "go",
       "import \"os\"\nfunc Add(a, b int) int {\n    os.Exit(0)\n    return 0\n}\n",
       {"failed"},
       "early_exit"},
      {"RustExit",
       "rust",
       "fn add(a: i32, b: i32) -> i32 { std::process::exit(0) }\n",
       {"failed"},
       "early_exit"},
      {"RustRecursion",
       "rust",
       "fn deep(n: u64) -> u64 { let x = [n; 99]; if n == u64::MAX { 0 } else { deep(n + 1) + x[(n "
       "% 99) as "
       "usize] } }\nfn add(a: i32, b: i32) -> i32 { deep(0) as i32 }\n",
       {"failed"}},
      {"JsExit", "js", "const add = (a, b) => { process.exit(0) }\n", {"failed"}, "early_exit"},
      {"JsSilencesAssert",
       "js",
       "console.assert = () => {};\nconst add = (a, b) => 0\n",
       {"failed"}},
      {"JsReplacesConsole",
       "js",
       "globalThis.console = {assert() {}, log() {}};\nconst add = (a, b) => 0\n",
       {"failed"}},
      {"JsLocalConsole",
       "js",
       "const console = {assert() {}};\nconst add = (a, b) => 0\n",
       {"failed"}},
      {"JsPrints",
       "js",
       "const add = (a, b) => { console.log('debug'); return a + b }\n",
       {"failed"},
       "printed"},
      {"JsMemory",
       "js",
       "const add = (a, b) => { const x = []; for (;;) x.push(new Array(1e6).fill(x.length)) }\n",
       {"memory"},
       "",
       false,
       15},
  };
}

// Each kind in every run, some attacks of it.
struct Kind {
  const char* name;
  std::vector<Hostile> attacks;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
std::vector<Kind> kinds() {
  return {{"Resources", attacks_on_resources()},
          {"Machine", attacks_on_the_machine()},
          {"Compilers", attacks_on_compilers()},
          {"Verdicts", attacks_on_verdicts()},
          {"OtherLanguages", attacks_on_other_languages()}};
}

class HostileProgram : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    for (const Hostile& h : GetParam().attacks) SKIP_UNLESS_RUNNABLE(h.language);
    ::setenv("EVALRUN_TEST_CANARY", "canary-in-the-environment", 1);
    // Not in /tmp: the box has a folder of that name.
    canary_ = fmt::format("/var/tmp/evalrun-canary-{}", ::getpid());
    std::ofstream(canary_) << kCanary;
    ::chmod(canary_.c_str(), 0666);
    // Prepared outside of the measured time.
    context_ = test_context();
  }
  void TearDown() override {
    std::error_code error;
    fs::remove(canary_, error);
  }

  void try_attack(const Hostile& h);
  std::string with_canary(std::string code) const {
    for (size_t at = 0; (at = code.find("CANARY")) != std::string::npos;)
      code.replace(at, 6, canary_);
    return code;
  }

  static constexpr const char* kCanary = "canary-in-a-file";
  std::string canary_;
  evaluators::ScoringContext context_;
};

// Processes that run as one of this process's users for boxes.
int processes_left() {
  const unsigned first = 210000 + static_cast<unsigned>(::getpid()) % 1000 * 64;
  int found = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    struct stat info {};
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (::stat(entry.path().c_str(), &info) != 0) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    // A killed process that its parent has not collected yet holds nothing any more.
    if (line.find(") Z ") != std::string::npos) continue;
    const bool child = line.find(fmt::format(") S {} ", ::getpid())) != std::string::npos ||
                       line.find(fmt::format(") R {} ", ::getpid())) != std::string::npos;
    found += (info.st_uid >= first && info.st_uid < first + 64) || child ? 1 : 0;
  }
  return found;
}

int job_folders_left() {
  int found = 0;
  for (const char* root : {"/dev/shm", "/tmp"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root, error))
      if (entry.path().filename().string().starts_with(fmt::format("evalrun-box-{}-", ::getpid())))
        for (const auto& job : fs::directory_iterator(entry.path(), error))
          found += job.path().filename().string()[0] == 'j' ? 1 : 0;
  }
  return found;
}

TEST_P(HostileProgram, IsContained) {
  const auto& all = GetParam().attacks;
  for (const Hostile& h : sample(all, (all.size() + 2) / 3)) try_attack(h);
}

void HostileProgram::try_attack(const Hostile& h) {
  SCOPED_TRACE(h.name);
  context_.time_scale = h.seconds / 5;
  const ProgramResult result =
      evaluators::run_answer(self_check(h.language), {with_canary(h.code), true},
                             evaluators::CodeConvention::kEvalrun, context_);
  const std::string about = result.status + " (" + result.detail + "): " + result.output;
  EXPECT_TRUE(std::find(h.statuses.begin(), h.statuses.end(), result.status) != h.statuses.end())
      << about;
  const std::string detail = h.detail;
  EXPECT_TRUE(detail.empty() || result.detail == detail) << about;
  EXPECT_TRUE(result.suspicious || !h.suspicious) << about;
  EXPECT_LT(result.wall_ms, h.seconds * 1e3 + 600) << about;
  EXPECT_EQ(base::read_file(canary_), kCanary);
  EXPECT_EQ(result.output.find("canary-in"), std::string::npos) << about;
  EXPECT_EQ(processes_left(), 0);
  EXPECT_EQ(job_folders_left(), 0);
}

INSTANTIATE_TEST_SUITE_P(Suite, HostileProgram, ::testing::ValuesIn(kinds()),
                         [](const auto& chosen) { return chosen.param.name; });

}  // namespace
}  // namespace evalrun::tests
