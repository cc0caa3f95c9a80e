# syntax=docker/dockerfile:1
#
# The daemon in an image without a shell: the program, the C library, and a configuration.
#
#   docker build -t crossdock --build-arg COMMIT=$(git rev-parse HEAD) \
#       --build-arg COMMIT_DATE=$(git show -s --format=%cs) .
#   docker run -d --name crossdock -p 7440:7440/udp -v $PWD/settings:/etc/crossdock:ro -v crossdock:/var/lib/crossdock crossdock
#   docker exec crossdock /usr/bin/crossdock streams
#
# In the container the daemon listens on every address, since nothing would reach it otherwise, so it does not start without
# keys or trusted networks: docs/install.md has the commands for the directory `settings`.

FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY bench bench
COPY crates crates
COPY examples examples
COPY xtask xtask
COPY README.md ./
COPY docs docs
# There is no checkout in here: the program gets its commit from outside.
ARG COMMIT=unknown
ARG COMMIT_DATE=
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    CROSSDOCK_COMMIT="$COMMIT" CROSSDOCK_COMMIT_DATE="$COMMIT_DATE" \
    cargo build --locked --profile dist --package crossdock \
    && install -D -m 755 target/dist/crossdock /image/usr/bin/crossdock \
    && strip /image/usr/bin/crossdock \
    && install -d -o 65532 -g 65532 /image/run/crossdock /image/var/lib/crossdock

# With glibc: a static binary with musl would need no C library here, but its allocator is slower under several threads.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Crossdock" \
      org.opencontainers.image.description="Processes typed messages while they are in transit" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT"
COPY --from=build /image/usr/bin/crossdock /usr/bin/crossdock
COPY --from=build --chown=65532:65532 /image/run/crossdock /run/crossdock
COPY --from=build --chown=65532:65532 /image/var/lib/crossdock /var/lib/crossdock
COPY packaging/container.toml /etc/crossdock/crossdock.toml
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/crossdock/
# The daemon and the commands that `docker exec` runs find each other by this.
ENV CROSSDOCK_SOCKET=/run/crossdock/control.sock
USER 65532:65532
EXPOSE 7440/udp
VOLUME ["/var/lib/crossdock"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["/usr/bin/crossdock", "contexts", "--json"]
ENTRYPOINT ["/usr/bin/crossdock"]
CMD ["serve", "--config", "/etc/crossdock/crossdock.toml"]
