"""What was skipped is told in the form that tools/test collects; a failure keeps the file from looking skipped."""


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        return
    reasons = []
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.append(reason.removeprefix("Skipped: "))
    for reason in dict.fromkeys(reasons):
        terminalreporter.write_line(f"test-skipped: {reason}")
