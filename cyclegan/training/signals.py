"""What signals ask of training: to stop, or to save."""

import contextlib
import os
import signal
import threading

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def nothing_to_save_yet():
    """From here on until `Signals` is entered, SIGUSR1, which would end the program, is taken without a word."""
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, lambda *_: None)


class Signals:
    """While it is entered, SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) ask to stop, SIGUSR1 to save and go on.

    The loop looks at `stop` and `save` after each step. A second Ctrl-C ends the process at once, also in the middle of a
    step: a thread of its own reads the signals, because Python itself looks at them only between two calls into TensorFlow.
    A signal that was ignored when the program started (as `nohup` does, or a shell in the background) stays ignored.

    Args:
        say: called with a text when a signal asked to stop; from another thread.

    Attributes:
        stop: the number of the signal that asked to stop, 0 if none did.
        save: whether a checkpoint was asked for; the loop sets it back.
    """

    def __init__(self, say=print):
        self.say = say
        self.stop = 0
        self.save = False
        self._handlers = {}
        self._thread = None

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may handle signals
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for signum in (*STOPS, signal.SIGUSR1):
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._handlers[signum] = signal.signal(signum, lambda *_: None)
        self._thread = threading.Thread(target=self._listen, args=(read,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        if self._thread:
            for signum, handler in self._handlers.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._write)  # which ends the thread
            self._thread.join()

    def _listen(self, read):
        with open(read, "rb", buffering=0) as pipe:
            while received := pipe.read(1):
                self._receive(received[0])

    def _receive(self, signum):
        if signum == signal.SIGUSR1:
            self.save = True
        elif signum in STOPS:
            if self.stop and signum == signal.SIGINT:
                os._exit(128 + signum)
            if not self.stop:
                self.stop = signum
                with contextlib.suppress(Exception):  # the thread has to go on
                    self.say("Stopping after this step, with a checkpoint; Ctrl-C again leaves at once, without one")
