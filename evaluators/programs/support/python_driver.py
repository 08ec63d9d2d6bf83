# Reads a program from standard input, compiles it, says so on descriptor 3 and runs it as __main__.
# Run with -c, so that no file holds the program's text.
import os as _os
import sys as _sys
def _compiled():
    return compile(_sys.stdin.buffer.read(), "<program>", "exec", dont_inherit=True)
try:
    _code = _compiled()
except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as _error:
    print("%s: %s" % (type(_error).__name__, _error), file=_sys.stderr)
    _sys.exit(1)
_os.write(3, b"C")
_names = {"__name__": "__main__", "__builtins__": __builtins__}
_sys.modules["__main__"].__dict__.update(_names)
for _name in ("_os", "_sys", "_compiled", "_names", "_name"):
    del globals()[_name]
# The program must not find its own code, which holds the number that proves its end.
exec(globals().pop("_code"), globals())
