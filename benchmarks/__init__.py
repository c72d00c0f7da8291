"""What Rondo costs, measured side by side in one run: `python -m benchmarks`. Figures: docs/performance.md."""
