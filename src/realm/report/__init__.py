"""report.html: one page about a run that needs nothing but itself: no script, no request, readable in twenty years."""

from realm.report.page import write_report

__all__ = ["write_report"]
