"""Spans of MLflow, whose TracerProvider is its own and never the global one."""

import mlflow
from tests.slow.frameworks.programs.openai_chats import chat
from tests.slow.frameworks.programs.ours import instrument

if __name__ == "__main__":
    instrument()
    mlflow.openai.autolog()

    agent = mlflow.trace(chat, name="agent")
    for _ in range(3):
        agent(2)
