"""Resource attributes that the installed SDK adds by itself; the oldest supported version does not."""

from opentelemetry.sdk import resources

INSTANCES = "service.instance.id" in resources.Resource.create().attributes
HOST_ID = hasattr(resources, "_get_host_id")
