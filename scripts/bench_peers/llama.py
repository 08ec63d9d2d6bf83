"""llama.cpp through its C interface: a model, contexts, batches whose every row asks for logits."""
import ctypes
import time

import llama_cpp as lib
import numpy as np

FLASH = {"auto": -1, "off": 0, "on": 1}
_log_lines = []


@lib.llama_log_callback
def _collect(_level, text, _data):
    _log_lines.append(text.decode("utf-8", "replace").rstrip())


lib.llama_log_set(_collect, ctypes.c_void_p(0))


def log_tail(n=5):
    return " / ".join(line for line in _log_lines[-n:] if line)


class LlamaError(RuntimeError):
    pass


def clock_ms():
    return time.perf_counter_ns() / 1e6


def some_tokens(n, n_vocab):
    """Fixed ids: what they say changes nothing in a dense model's time."""
    return [(7919 * i + 104729) % (n_vocab - 64) + 32 for i in range(n)]


def build_info():
    return {"version": lib.__version__, "numpy": np.__version__,
            "system_info": lib.llama_print_system_info().decode()}


def quantize(source, target, ftype, threads):
    """The package's own quantiser with its defaults, requantising allowed."""
    params = lib.llama_model_quantize_default_params()
    params.ftype = ftype
    params.nthread = threads
    params.allow_requantize = True
    code = lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params))
    if code != 0:
        raise LlamaError(f"llama_model_quantize to {target} failed with code {code}: {log_tail()}")


class Batch:
    """n tokens at positions first.. of sequence 0; logits of all rows, or of the last one only."""

    def __init__(self, tokens, first, all_logits=True):
        n = len(tokens)
        self.n = n
        self.n_outputs = n if all_logits else 1
        self._tokens = np.asarray(tokens, dtype=np.int32).copy()
        self._positions = np.arange(first, first + n, dtype=np.int32)
        self._counts = np.ones(n, dtype=np.int32)
        self.wanted = np.full(n, 1 if all_logits else 0, dtype=np.int8)
        self.wanted[-1] = 1
        self._sequence = (lib.llama_seq_id * 1)(0)
        pointer = ctypes.POINTER(lib.llama_seq_id)
        self._sequences = (pointer * n)(*[ctypes.cast(self._sequence, pointer)] * n)

        def at(array, kind):
            return array.ctypes.data_as(ctypes.POINTER(kind))
        self.struct = lib.llama_batch(
            n, at(self._tokens, ctypes.c_int32), None, at(self._positions, ctypes.c_int32),
            at(self._counts, ctypes.c_int32), self._sequences, at(self.wanted, ctypes.c_int8))

    def set_single(self, token, position):
        self._tokens[0] = token
        self._positions[0] = position


class StepBatch(Batch):
    """One token of each of the sequences 0 .. n-1, all at one position; logits of every one."""

    def __init__(self, n):
        super().__init__([0] * n, 0)
        self._numbers = (lib.llama_seq_id * n)(*range(n))
        pointer = ctypes.POINTER(lib.llama_seq_id)
        address, size = ctypes.addressof(self._numbers), ctypes.sizeof(lib.llama_seq_id)
        self._sequences = (pointer * n)(*[ctypes.cast(address + i * size, pointer) for i in range(n)])
        self.struct.seq_id = self._sequences

    def set(self, tokens, position):
        self._tokens[:] = tokens
        self._positions[:] = position


class Model:
    def __init__(self, path):
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        start = len(_log_lines)
        self.handle = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LlamaError(f"llama.cpp cannot load {path}: {log_tail()}")
        # Which kernels hold the weights ("AMX", "CPU_REPACK") is only said in the log.
        self.buffers = [line.split(":", 1)[-1].strip() for line in _log_lines[start:]
                        if "model buffer size" in line]
        self.vocab = lib.llama_model_get_vocab(self.handle)
        self.n_vocab = lib.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text):
        """Ids without a begin token; special tokens written in the text are read as such."""
        data = text.encode()
        out = (lib.llama_token * (len(data) + 8))()
        n = lib.llama_tokenize(self.vocab, data, len(data), out, len(out), False, True)
        if n < 0:
            raise LlamaError(f"llama_tokenize failed on {len(data)} bytes with code {n}")
        return list(out[:n])


class Context:
    """n_ctx tokens; with several sequences an equal part of them for each."""

    def __init__(self, model, n_ctx, threads, flash, sequences=1):
        self.model = model
        if sequences > lib.llama_max_parallel_sequences():
            raise LlamaError(f"{sequences} sequences are more than the {lib.llama_max_parallel_sequences()} that "
                             "this llama.cpp can decode at once")
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.kv_unified = False  # the default: a step of some sequences does not read the others' cells
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH[flash]
        params.no_perf = True
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LlamaError(f"llama.cpp cannot make a context of {n_ctx} tokens: {log_tail()}")
        self.memory = lib.llama_get_memory(self.handle)

    def close(self):
        lib.llama_free(self.handle)

    def decode(self, batch):
        code = lib.llama_decode(self.handle, batch.struct)
        if code != 0:
            raise LlamaError(f"llama_decode of {batch.n} rows failed with code {code}: {log_tail()}")
        # Waits for the end of the computation, which the decode alone need not.
        return lib.llama_get_logits(self.handle)

    def rows(self, logits, n):
        """The logits as an array [n, vocabulary] over llama.cpp's own memory."""
        return np.ctypeslib.as_array(logits, shape=(n, self.model.n_vocab))

    def copy_to(self, sequences, n):
        """The n tokens of sequence 0 to others; their cells are written in the next decode."""
        for sequence in sequences:
            lib.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
            last = lib.llama_memory_seq_pos_max(self.memory, sequence)
            if last != n - 1:
                raise LlamaError(f"llama_memory_seq_cp to sequence {sequence} ended at position {last}, not {n - 1}")

    def keep(self, n, sequence=0):
        """Forgets all tokens of a sequence from position n on."""
        if not lib.llama_memory_seq_rm(self.memory, sequence, n, -1):
            raise LlamaError(f"llama_memory_seq_rm from position {n} failed: {log_tail()}")
