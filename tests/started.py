"""What scripts share that start programs beside `ostler up`."""

import json, socket, subprocess, time
from pathlib import Path


def free_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def until(what, ask, seconds=120, pause=0.05):
    """The first answer of `ask` that is true, and how long it took."""
    begin = time.monotonic()
    while not (answer := ask()):
        assert time.monotonic() - begin < seconds, f"never within {seconds} s: {what}"
        time.sleep(pause)
    return answer, time.monotonic() - begin


class Started:
    """A folder with the logs of programs and the data of `ostler up`, which is one of the programs."""

    def __init__(self, folder):
        self.folder, self.running = Path(folder), {}
        self.kubeconfig = str(self.folder / "up" / "kubeconfig")

    def start(self, name, command, **options):
        log = open(self.folder / f"{name}.log", "a")
        self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, **options)

    def serves(self):
        """Whether the API server answers, and has the kinds."""
        return Path(self.kubeconfig).exists() and self.kubectl("get", "machines.machine.sapcloud.io", check=False) is not None

    def end(self):
        for process in reversed(self.running.values()):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def kubectl(self, *arguments, check=True, given=None):
        """What kubectl says, or None."""
        command = ["kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else None

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", given="\n---\n".join(map(json.dumps, objects)))
