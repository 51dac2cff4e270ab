# minorm with the extras `demo` and `images`; the compiler stays in the first stage. In the clone:
#
#     docker build -t minorm-nn .
#     docker run --rm minorm-nn                                               # the demo
#     docker run --rm -v "$PWD:/work" minorm-nn train --path images/ -o run   # a folder of pictures
#
# Not built by Docker yet. Its lines were tried one by one, with Python 3.11 on Debian 12: the wheel from a fresh clone,
# its installation in an empty environment, and the demo in an empty folder. The lines of apt-get were not.
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /clone
RUN pip wheel --no-deps --wheel-dir /wheels /clone

FROM python:3.13-slim
# What OpenMP computes with; gcc brought it to the first stage.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[demo,images]"
WORKDIR /work
ENTRYPOINT ["minorm"]
CMD ["demo"]
