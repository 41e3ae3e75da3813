"""Spans of Traceloop's SDK: workflows of LangChain, and a chain outside of a workflow."""

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from tests.slow.frameworks.programs.ours import instrument
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import task, workflow

if __name__ == "__main__":
    instrument()
    Traceloop.init(app_name="frameworks")
    chain = ChatPromptTemplate.from_template("How much is {sum}?") | ChatOpenAI(model="stub") | StrOutputParser()

    def ask() -> None:
        chain.invoke({"sum": "2 + 2"})

    def answer() -> None:
        for _ in range(2):
            task(name="ask")(ask)()

    for _ in range(2):
        workflow(name="answer")(answer)()
    ask()
