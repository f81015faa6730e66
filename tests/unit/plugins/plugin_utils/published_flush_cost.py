# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures of the published benchmark, by number of blocks: an NVMe laptop, a patched server, 30 iterations of each size.

From the repository danolivo/conf on GitHub, Scripts/temp_buffers_benchmark: MICROSECONDS from SEQ_VS_RANDOM_COMPARISON.md, commit a4bae974 (outliers
removed there), DRY_MILLISECONDS from report.md, commit 08bde6f5. RATIOS are medians of the 360 raw files of results/, by our own analysis.
"""

# blocks: sequential read, random read, sequential write, random write; per block
MICROSECONDS = {
    128: (1.442, 1.396, 1.437, 1.272), 256: (1.114, 1.074, 1.108, 1.044), 512: (1.073, 1.053, 1.052, 0.925), 1024: (1.035, 1.127, 0.987, 1.074),
    2048: (1.170, 1.231, 1.476, 1.473), 4096: (1.146, 1.251, 1.588, 1.556), 8192: (1.147, 1.301, 1.518, 1.607), 16384: (1.176, 1.351, 1.541, 1.697),
    32768: (1.210, 1.390, 1.547, 1.799), 65536: (1.319, 1.494, 1.561, 1.843), 131072: (1.283, 1.584, 1.570, 1.891), 262144: (1.372, 1.706, 1.586, 1.956),
}
# of a flush without a dirty buffer
DRY_MILLISECONDS = {
    512: 0.002, 1024: 0.003, 2048: 0.004, 4096: 0.007, 8192: 0.013, 16384: 0.026, 32768: 0.051, 65536: 0.102, 131072: 0.204, 262144: 0.413,
}
# write / read, by size; of 128 to 512 they are 0.99 to 1.01
RATIOS = {1024: 0.94, 2048: 1.28, 4096: 1.38, 8192: 1.33, 32768: 1.28, 65536: 1.18, 262144: 1.19}


def measurements():
    """As temp_buffer_cost would have returned them, with one iteration: the medians."""
    found = []
    for blocks, (read, random_read, write, random_write) in MICROSECONDS.items():
        # the two smallest are not in the published table: what a statement costs alone
        dry = 1000 * DRY_MILLISECONDS.get(blocks, 0.002) / blocks
        values = {"write": write, "dry_write": dry, "read": read, "dry_read": 0.03, "random_read": random_read, "random_write": random_write}
        found.append({
            "blocks": blocks, "buffers": blocks, "written": blocks, "read": blocks, "iterations": 1,
            "microseconds": {phase: {"median": value, "values": [value]} for phase, value in values.items()},
        })
    return found
