"""Two FTLs, two workloads, three DRAM sizes, as one works on them in a notebook: each `# %%` begins a cell."""

# %%
from pathlib import Path

import polars as pl

import flashfs
from flashfs.replay.plots import draw, figure

table = flashfs.replay(
    ["zipf:ops=60k,write=0.5", "uniform:ops=60k,write=0.5"],
    ftl=["pagemap", "slimftl"],
    dram=["2M", "4M", "8M"],
    preset="small-64m",
    precondition="fill",
)

# %% One row for each combination; columns are the names in the JSON of `flashfs replay`, joined by dots.
picked = table.select(
    pl.col("ftl"),
    pl.col("source").str.extract("^([a-z]+)"),
    (pl.col("config.dram") // 2**20).alias("MiB"),
    pl.col("waf").round(2),
    (100 * pl.col("cache.hit_ratio")).round(1).alias("hits %"),
    pl.col("latency_us.read.p99").round(0).alias("read p99"),
)
for row in [picked.columns, *picked.rows()]:
    print("".join(f"{value!s:>10}" for value in row))

# %% What the map costs, and what the DRAM that it leaves is good for.
mapping = dict(table.group_by("ftl", maintain_order=True).agg(pl.col("map_bytes").first()).rows())
print(f"slimftl's map takes {mapping['slimftl'] / mapping['pagemap']:.0%} of pagemap's {mapping['pagemap']:,} bytes")

# %% Pictures; `.to_pandas()` gives the table as pandas has it.
draw(figure(table, "hits"), Path("hits.svg"))
draw(figure(table, "waf", baseline="pagemap", where={"dram": "4M"}), Path("waf.pdf"))
