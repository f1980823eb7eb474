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
        row("kda_prefill", T=8192, H=12, seqs=1),
        row("kda_prefill", T=8192, H=12, seqs=8),
        row("situ_and_mul", D=6144, tokens=1),
    ],
}
PEER = {
    "machine": "nvidia-h200",
    "name": NAME,
    "ops": ["kda_fused_decode", "kda_packed_decode"],
    "rows": [{"B": 1, "H": 12, "us": 3.95}, {"B": 8, "H": 12, "us": 6.5}],
}


class JoinPeers(unittest.TestCase):
    def run_tool(self, report, peer):
        """@returns the exit status, what it said, and the report as it stands afterwards"""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / "report.json", Path(folder) / "peer.json"]
            for path, value in zip(paths, (report, peer)):
                path.write_text(json.dumps(value))
            done = subprocess.run([sys.executable, TOOL, *paths], capture_output=True, text=True)
            return done.returncode, done.stderr, json.loads(paths[0].read_text())

    def assert_refused(self, peer, reason):
        status, said, report = self.run_tool(REPORT, peer)
        self.assertEqual((status, report), (1, REPORT))
        self.assertTrue(said.startswith("join_peers: "), said)
        self.assertIn(reason, said)

    def test_only_decode_rows_of_the_same_shape_get_the_figure(self):
        expected = copy.deepcopy(REPORT)
        expected["rows"][0]["peer"][NAME] = 3.95
        expected["rows"][1]["peer"][NAME] = 3.95
        status, _, report = self.run_tool(REPORT, PEER)
        self.assertEqual((status, report), (0, expected))

    def test_the_peer_says_which_ops_it_is_for(self):
        expected = copy.deepcopy(REPORT)
        expected["rows"][0]["peer"][NAME] = 3.95
        status, _, report = self.run_tool(REPORT, {**PEER, "ops": ["kda_fused_decode"]})
        self.assertEqual((status, report), (0, expected))

    def test_every_size_of_a_shape_must_agree(self):
        peer = {
            "machine": "nvidia-h200",
            "name": "fla chunk_kda 0.6.0",
            "ops": ["kda_prefill"],
            "rows": [
                {"T": 512, "H": 12, "seqs": 1, "us": 900.0},
                {"T": 8192, "H": 12, "seqs": 8, "us": 1640.0, "way": "graph"},
            ],
        }
        expected = copy.deepcopy(REPORT)
        expected["rows"][6]["peer"]["fla chunk_kda 0.6.0"] = 1640.0
        status, _, report = self.run_tool(REPORT, peer)
        self.assertEqual((status, report), (0, expected))

    def test_a_figure_without_a_graph_says_so(self):
        expected = copy.deepcopy(REPORT)
        expected["rows"][0]["peer"][NAME + ", no graph"] = 3.95
        expected["rows"][1]["peer"][NAME + ", no graph"] = 3.95
        peer = {**PEER, "rows": [{"B": 1, "H": 12, "us": 3.95, "way": "launches"}]}
        status, _, report = self.run_tool(REPORT, peer)
        self.assertEqual((status, report), (0, expected))

    def test_a_figure_that_is_no_time_is_refused(self):
        for us in ("fast", float("nan"), -3, 0, None):
            with self.subTest(us=us):
                self.assert_refused({**PEER, "rows": [{"B": 1, "H": 12, "us": us}]}, "us must be")

    def test_another_machine_is_refused(self):
        self.assert_refused({**PEER, "machine": "nvidia-b200"}, "nvidia-b200")

    def test_no_common_shape_is_refused(self):
        self.assert_refused({**PEER, "rows": PEER["rows"][1:]}, "no row")

    def test_a_file_without_its_keys_is_refused(self):
        for key in PEER:
            peer = {k: v for k, v in PEER.items() if k != key}
            with self.subTest(key=key):
                self.assert_refused(peer, key)


if __name__ == "__main__":
    unittest.main()
