"""Flask, an application of WSGI. Give it threads if it waits for a database.

    highwire-server --threads 4 flask_app:app
"""

from flask import Flask, request

app = Flask(__name__)


@app.get("/item/<int:number>")
def item(number):
    return {"number": number}


@app.post("/item")
def post():
    return request.get_json()


@app.get("/stream")
def stream():
    return (f"{number}," for number in range(5)), {"Content-Type": "text/plain"}
