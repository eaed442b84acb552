# syntax=docker/dockerfile:1
FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/bridle
WORKDIR /src
# Dependencies first: they change less often than the code, and this layer is the slow one.
COPY pyproject.toml constraints.txt LICENSE ./
RUN mkdir common services gateway \
 && touch common/__init__.py services/__init__.py gateway/__init__.py \
 && /opt/bridle/bin/pip install -c constraints.txt . \
 && /opt/bridle/bin/pip uninstall --yes bridle
COPY common common
COPY services services
COPY gateway gateway
RUN /opt/bridle/bin/pip install --no-deps .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin bridle \
 && install -d -o bridle -g bridle /data
COPY --from=build /opt/bridle /opt/bridle
ENV PATH=/opt/bridle/bin:$PATH PYTHONUNBUFFERED=1 BRIDLE_DATA_DIR=/data
# By number, so that Kubernetes can verify runAsNonRoot.
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 50051 8283
# Exec form: the server is process 1 and gets SIGTERM itself, which starts its drain.
ENTRYPOINT ["bridle"]
CMD ["serve"]
