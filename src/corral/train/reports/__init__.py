"""Reports: one self-contained HTML file with pictures, and nothing loaded from afar."""
