"""Data that JSON Schema allows and serde does not read."""

import schemathesis


def whole(value):
    """Writes integers without a decimal point: JSON Schema takes 3.0 for an integer, serde does not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(element) for element in value]
    if isinstance(value, dict):
        return {name: whole(member) for name, member in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return whole(body)
