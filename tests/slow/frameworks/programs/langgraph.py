"""Spans of LangGraph by LangSmith's OpenTelemetry exporter: a graph of two nodes, one with a model of LangChain.

Usage: opentelemetry-instrument python -m tests.slow.frameworks.programs.langgraph
"""

import time
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langsmith.run_trees import get_cached_client


class State(TypedDict):
    answer: str


def ask(state: State) -> State:
    return {"answer": str(ChatOpenAI(model="stub").invoke("2 + 2?").content)}


def check(state: State) -> State:
    time.sleep(0.6)
    return state


if __name__ == "__main__":
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("check", check)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "check")
    graph.add_edge("check", END)
    program = graph.compile()
    for _ in range(2):
        program.invoke({"answer": ""})
    for _ in program.stream({"answer": ""}):
        pass
    get_cached_client().flush()
