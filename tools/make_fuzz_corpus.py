#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus: small valid files, and one file for each way to be wrong."""
import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


F32 = tensor("F32", [2], 0, 8)
EIGHT = bytes(range(8))
SEEDS = {
    "valid_empty": file({}),
    "valid_metadata": file({"__metadata__": {"op": "situ_and_mul", "beta": ""}}),
    "valid_two": file({"b": tensor("BF16", [2, 1], 8, 12), "a": F32}, EIGHT + b"\1\2\3\4"),
    "valid_scalar_and_empty": file({"s": tensor("I64", [], 0, 8), "z": tensor("U8", [3, 0], 8, 8)},
                                   EIGHT),
    "valid_padded": file(json.dumps({"a": F32}).encode() + b"   ", EIGHT),
    "no_bytes": b"",
    "short_length": b"\1\2\3",
    "length_near_2_64": file({}, length=2**64 - 1),
    "length_past_file": file({}, length=3),
    "length_zero": file(b""),
    "not_an_object": file(b"[]"),
    "nested_arrays": file(b'{"a":' + b"[" * 200),
    "nested_objects": file(b'{"a":' * 60),
    "trailing_text": file(b"{}{}"),
    "not_utf8": file(b'{"\xff\xfe":1}'),
    "same_name_twice": file(b'{"a":%s,"a":%s}' % ((json.dumps(F32).encode(),) * 2), EIGHT),
    "same_key_twice": file(b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
                           EIGHT),
    "unknown_key": file({"a": F32 | {"more": 1}}, EIGHT),
    "unknown_dtype": file({"a": tensor("Q4", [2], 0, 8)}, EIGHT),
    "missing_offsets": file({"a": {"dtype": "F32", "shape": [2]}}, EIGHT),
    "one_offset": file({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, EIGHT),
    "three_offsets": file({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}}, EIGHT),
    "reversed_offsets": file({"a": tensor("F32", [2], 8, 0)}, EIGHT),
    "offsets_past_file": file({"a": tensor("F32", [4], 0, 16)}, EIGHT),
    "overlap": file({"a": F32, "b": F32}, EIGHT),
    "hole": file({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 6, 8)}, EIGHT),
    "uncovered_tail": file({"a": tensor("U8", [2], 0, 2)}, EIGHT),
    "wrong_size": file({"a": tensor("F32", [3], 0, 8)}, EIGHT),
    "negative_size": file({"a": tensor("F32", [-2], 0, 8)}, EIGHT),
    "fraction": file({"a": tensor("F32", [2.5], 0, 8)}, EIGHT),
    "product_overflow": file({"a": tensor("F32", [2**32, 2**32, 2**32], 0, 0)}),
    "product_wraps_to_eight": file({"a": tensor("F32", [2**62 + 2], 0, 8)}, EIGHT),
    "empty_with_huge_axes": file({"a": tensor("U8", [0, 2**62, 2**62], 0, 0)}),
    "size_of_2_64": file(b'{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,8]}}',
                         EIGHT),
    "rank_9": file({"a": tensor("U8", [1] * 9, 0, 1)}, b"\0"),
    "metadata_number": file({"__metadata__": {"beta": 4}}),
    "metadata_list": file({"__metadata__": []}),
}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
