"""Recording rules, alerts and dashboards."""
