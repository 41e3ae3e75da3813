"""What the installed SDK says of a resource by itself: that came with later versions than the oldest we work with."""

from opentelemetry.sdk import resources

INSTANCES = "service.instance.id" in resources.Resource.create().attributes
HOST_ID = hasattr(resources, "_get_host_id")
