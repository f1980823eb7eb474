# SPDX-License-Identifier: Apache-2.0
import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "join_peers.py"
NAME = "fla fused_recurrent_kda 0.6.0, recurrence alone"


def row(op, peer=None, **shape):
    return {"op": op, "variant": "vec4", "shape": shape, "median_us": 2.5, "peer": peer or {}}


REPORT = {
    "machine": "nvidia-h200",
    "rows": [
        row("kda_fused_decode", {"reference": 5.5}, B=1, H=12),
        row("kda_packed_decode", B=1, H=12),
        row("kda_fused_decode", B=2, H=12),
        row("kda_fused_decode", B=1, H=96),
        row("kda_replay_commit", B=1, H=12, layers=4, A=4),
        row("situ_and_mul", D=6144, tokens=1),
    ],
}
PEER = {
    "machine": "nvidia-h200",
    "fla": "0.6.0",
    "rows": [{"B": 1, "H": 12, "us": 3.95}, {"B": 8, "H": 12, "us": 6.5}],
}


class JoinPeers(unittest.TestCase):
    def run_tool(self, report, peer):
        """@returns the exit status and the report as it stands afterwards"""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / "report.json", Path(folder) / "peer.json"]
            for path, value in zip(paths, (report, peer)):
                path.write_text(json.dumps(value))
            done = subprocess.run([sys.executable, TOOL, *paths], capture_output=True)
            return done.returncode, json.loads(paths[0].read_text())

    def test_only_decode_rows_of_the_same_shape_get_the_figure(self):
        expected = copy.deepcopy(REPORT)
        expected["rows"][0]["peer"][NAME] = 3.95
        expected["rows"][1]["peer"][NAME] = 3.95
        self.assertEqual(self.run_tool(REPORT, PEER), (0, expected))

    def test_another_machine_is_refused(self):
        self.assertEqual(self.run_tool(REPORT, {**PEER, "machine": "nvidia-b200"}), (1, REPORT))

    def test_no_common_shape_is_refused(self):
        self.assertEqual(self.run_tool(REPORT, {**PEER, "rows": PEER["rows"][1:]}), (1, REPORT))


if __name__ == "__main__":
    unittest.main()
