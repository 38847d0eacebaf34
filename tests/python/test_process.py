"""What importing touches, forks, threads, and the command line."""
import os
import subprocess
import sys
import threading

import attile
import numpy as np
import plain

Q = np.random.default_rng(3).standard_normal((2, 4, 40, 16)).astype("f4")
WANT = plain.attention(Q, Q, Q, causal=True)[0]

USE = """
import attile, numpy as np
def use(**options):
    q = np.random.default_rng(3).standard_normal((2, 4, 40, 16)).astype("f4")
    o = attile.attention(q, q, q, **options)
    assert np.isfinite(o).all()
    return o
"""


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)


def in_a_child(action):
    """The exit status of a forked child that does this; a child that hangs is killed by its alarm."""
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(60)
        status = 1
        try:
            status = 0 if action() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def computes(**options):
    return lambda: np.abs(attile.attention(Q, Q, Q, causal=True, **options) - WANT).max() < 1e-4


def test_import_loads_no_gpu_no_compiler_and_no_other_library():
    out = python("""
import sys, attile
maps = open("/proc/self/maps").read()
loaded = [name for name in ("libcuda", "libnvrtc", "libattile_llvm", "libLLVM", "libtorch") if name in maps]
loaded += [name for name in ("torch", "numpy", "jax", "cupy") if name in sys.modules]
threads = len(__import__("os").listdir("/proc/self/task"))
print(loaded, threads)
""")
    assert out.stdout.strip() == "[] 1", out.stdout + out.stderr


def test_fork_before_the_first_call(tmp_path):
    out = python(USE + """
import os, sys
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        use(causal=True)
        os._exit(0)
    children.append(child)
use(causal=True)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
""", ATTILE_CACHE_DIR=str(tmp_path))
    assert out.returncode == 0, out.stderr


def test_fork_after_calls():
    attile.set_threads(4)
    try:
        assert computes()()
        assert in_a_child(computes()) == 0                      # a kernel that is loaded
        assert in_a_child(computes(softcap=1e6)) == 0           # one that the child has to make
        assert in_a_child(lambda: in_a_child(computes()) == 0) == 0
        assert computes()()
    finally:
        attile.set_threads(0)


def test_fork_while_other_threads_call():
    stop = threading.Event()

    def calls():
        while not stop.is_set():
            computes()()
    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        statuses = [in_a_child(computes()) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 20


def test_threads_call_at_once():
    faults = []

    def work(cap):
        for _ in range(10):
            if not computes(softcap=cap)():
                faults.append(cap)
    threads = [threading.Thread(target=work, args=(1e5 + i % 3,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_multiprocessing_pool():
    import multiprocessing
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            for o in pool.map(_causal, [Q] * 4):
                assert np.abs(o - WANT).max() < 1e-4


def _causal(q):
    return attile.attention(q, q, q, causal=True)


def test_command_line():
    out = subprocess.run([sys.executable, "-m", "attile", "run", "--causal", "--seqlen-q", "32", "--check", "--device", "cpu"],
                         capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert subprocess.run([sys.executable, "-m", "attile", "no-such-verb"], capture_output=True).returncode == 2
    version = subprocess.run([sys.executable, "-m", "attile", "--version"], capture_output=True, text=True).stdout
    assert attile.__version__ in version


def test_any_letters_in_the_folders(tmp_path):
    import shutil
    place = tmp_path / "a b größe 数据 $x'y"
    shutil.copytree(os.path.dirname(attile.__file__), place / "attile")
    for _ in range(2):  # cold and from the disk cache
        out = python(USE + "print(attile.__file__); use(causal=True)", PYTHONPATH=str(place), ATTILE_CACHE_DIR=str(place / "cache"))
        assert out.returncode == 0 and str(place) in out.stdout, out.stderr


def test_missing_llvm_module_is_an_error_of_the_environment():
    out = python(USE + """
try:
    use()
except attile.errors.EnvironmentError as error:
    print(error)
""", ATTILE_LLVM_MODULE="/nowhere/libattile_llvm.so", ATTILE_CACHE="off")
    assert "/nowhere/libattile_llvm.so" in out.stdout, out.stderr


def test_threads_call_first_at_once_while_imports_are_slow():
    """Imports give other threads the turn; none may hold what the importing one waits for."""
    out = python("""
import faulthandler, sys, threading, time
import attile, numpy as np, types
faulthandler.dump_traceback_later(40, exit=True)  # needs no turn of the interpreter, which may be what is stuck

class Slow:
    def find_spec(self, *_):
        time.sleep(0.05)
    find_module = None
sys.meta_path.insert(0, Slow())
for name in ("attile.arrays", "attile.reach", "types"):  # imported anew by the first call
    sys.modules.pop(name, None)
q, faults = np.ones((1, 1, 4, 8), "f4"), []
gate = threading.Barrier(3)
def call():
    gate.wait()
    try:
        attile.attention(q, q, q, score_mod=lambda s, b, h, i, j: s * 2)
    except BaseException as fault:
        faults.append(fault)
threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join(10)
stuck = sum(thread.is_alive() for thread in threads)
print(faults, stuck, "threads are stuck", flush=True)
import os; os._exit(bool(faults or stuck))
""")
    assert out.returncode == 0, out.stdout + out.stderr


def test_fork_while_other_threads_call_with_functions():
    stop = threading.Event()
    double, triple = (lambda s, b, h, i, j: s * 2), (lambda s, b, h, i, j: s * 3)

    def once(function):
        return np.isfinite(attile.attention(Q, Q, Q, score_mod=function)).all()

    def calls():
        while not stop.is_set():
            once(double)
    once(double), once(triple)
    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        statuses = [in_a_child(lambda: once(double) and once(triple)) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 20
