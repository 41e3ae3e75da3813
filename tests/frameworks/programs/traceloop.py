"""Spans of Traceloop's SDK: workflows of LangChain, and a chain outside of a workflow."""

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from tests.frameworks.programs.ours import instrument
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import task, workflow

if __name__ == "__main__":
    instrument()
    Traceloop.init(app_name="frameworks")
    chain = ChatPromptTemplate.from_template("How much is {sum}?") | ChatOpenAI(model="stub") | StrOutputParser()

    @task(name="ask")
    def ask() -> str:
        return chain.invoke({"sum": "2 + 2"})

    @workflow(name="answer")
    def answer() -> None:
        ask()
        ask()

    answer()
    answer()
    chain.invoke({"sum": "2 + 2"})
