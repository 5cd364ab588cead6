"""MediaWiki dumps, part by part: decompression, XML pages, names by language, and the scanners behind ``wikitext``."""
