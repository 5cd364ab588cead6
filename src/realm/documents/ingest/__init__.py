"""From sources to blocks: records read, canonical texts spooled, tagged, packed into blocks, written and published as a corpus."""
