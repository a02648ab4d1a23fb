"""What the benchmark commands share: data, protocol, models, cells, tables and pictures."""
