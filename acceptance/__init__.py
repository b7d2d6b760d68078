"""The acceptance suite: the bring-up document, one file a heading, one or more tests a spec of `catalog.toml`.

Above a test stands the sentence that it holds the toolchain to, as the reference project's document has it.
"""
