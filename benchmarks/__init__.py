"""The benchmarks: `python -m benchmarks`. Results are in docs/performance.md."""
