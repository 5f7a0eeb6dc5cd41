"""examples/support-python starts with two commands, and its agent survives the death of both programs."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from holdfast import Holdfast

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "support-python"


class Program:
    """Program is a running program whose output names its address."""

    def __init__(self, *command: str, environ: dict[str, str] | None = None) -> None:
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}, cwd=EXAMPLE
        )
        assert self.child.stdout
        for line in self.child.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                return
        raise AssertionError(f"{command[0]} has ended with {self.child.wait()}")

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        assert self.child.stdout
        self.child.stdout.close()


class TestExample(unittest.TestCase):
    def start_app(self, port: str = "0") -> Program:
        app = Program(sys.executable, "app.py", environ={"PORT": port})
        self.addCleanup(app.kill)
        return app

    def start_runtime(self, app: Program, listen: str = "127.0.0.1:0") -> Program:
        runtime = Program(
            os.environ["HOLDFAST_BIN"], "dev", "--agents", "models.yaml", "--endpoint", app.url + "/",
            "--listen", listen, "--data", self.data,
        )  # fmt: skip
        self.addCleanup(runtime.kill)
        return runtime

    def test_it_starts_with_two_commands(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = folder.name
        app = self.start_app()
        runtime = self.start_runtime(app)
        client = Holdfast(runtime.url)
        while not any(agent["agentType"] == "support" for agent in client.agents()):
            time.sleep(0.02)  # a poll; the test ends with the agent
        self.assertEqual(client.ask("What was o-17?", session_id="s", user_id="ann").text, "The order o-17 was 12.5.")
        self.assertEqual(client.ask("Refund o-17.", session_id="s").text, "I have refunded 12.5: receipt-1.")

        answer = client.ask("Refund o-18.", session_id="s")
        [pending] = answer.pending_calls
        app.kill()
        runtime.kill()
        app = self.start_app(app.url.rsplit(":", 1)[1])
        runtime = self.start_runtime(app, runtime.url.removeprefix("http://"))
        client.approve(pending)
        self.assertEqual(client.wait("s")["output"], "I have refunded 340.0: receipt-1.")  # of the new process
        [third] = client.ask("Refund o-19.", session_id="s").pending_calls
        client.deny(third, "It is the third one.")
        self.assertIn("I could not refund it", client.wait("s")["output"])

    def test_it_starts_again_when_a_file_changes(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        copy = pathlib.Path(folder.name) / "app.py"
        text = (EXAMPLE / "app.py").read_text()
        copy.write_text(text)
        app = Program(sys.executable, str(copy), environ={"PORT": "0"})
        self.addCleanup(app.kill)
        stdout = app.child.stdout
        assert stdout
        copy.write_text(text.replace('"support",', '"helpdesk",'))
        os.utime(copy, ns=(1, 1))  # another time than before, whatever the clock's resolution
        self.assertRegex(stdout.readline(), r"^Agents helpdesk at http://127\.0\.0\.1:\d+/$")


if __name__ == "__main__":
    unittest.main()
