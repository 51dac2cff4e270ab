# minorm with the extras `demo` and `images`; the compiler stays in the first stage. In the clone:
#
#     docker build -t minorm-nn .
#     docker run --rm minorm-nn                                                      # the demo
#     docker run --rm -v "$PWD:/work" minorm-nn train --path images/ -o run            # a folder of pictures
#
# TRIED
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
