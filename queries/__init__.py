"""Knowledge as files: every question is a `.sql` file with a TOML header; the file name is its name."""
