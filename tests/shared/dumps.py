"""MediaWiki dumps, and what a source gives of documents."""

SITE = """<siteinfo><sitename>W</sitename><dbname>testwiki</dbname><namespaces><namespace key="0" /><namespace key="6">Resym</namespace>
<namespace key="10">Templato</namespace></namespaces></siteinfo>"""


def dump(*pages, schema="0.11", site=SITE):
    head = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{schema}/" version="{schema}">'
    return "\n".join([head, site, *pages, "</mediawiki>", ""])


def page(number, title, text, ns="0", extra="", revision=""):
    head = f"<title>{title}</title>{'' if ns is None else f'<ns>{ns}</ns>'}<id>{number}</id>{extra}"
    return f"<page>{head}<revision><id>9</id><timestamp>2020-01-01T00:00:00Z</timestamp>{revision}<text>{text}</text></revision></page>"
