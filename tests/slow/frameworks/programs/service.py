"""A FastAPI service whose `/chat` asks its own `/embed` with httpx."""

import asyncio
import os

import httpx
from fastapi import FastAPI

app = FastAPI()


@app.get("/embed")
async def embed() -> list[float]:
    await asyncio.sleep(0.4)
    return [0.1]


@app.get("/chat")
async def chat() -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(f"http://127.0.0.1:{os.environ['FRAMEWORK_PORT']}/embed")
    await asyncio.sleep(0.8)
    return "four"
