# The image of every role. `docker build -t yardmaster:0.1.0 .` builds it; `--target agent --build-arg AGENT_BASE=IMAGE` puts the agent
# into an image that has your engines (vLLM's, say), since an agent starts engines as processes of its own container.
# To be independent of what a tag means tomorrow, give NODE_IMAGE with its digest.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim
ARG AGENT_BASE=${NODE_IMAGE}

FROM ${NODE_IMAGE} AS build
WORKDIR /src
COPY . .
# Nothing that is installed runs a script. The second install leaves what runs at a user's place, without the Node of the packages:
# the image has its own.
RUN npm ci --ignore-scripts \
 && npm run build \
 && npm ci --ignore-scripts --omit=dev --omit=optional \
 && mkdir -p /opt/yardmaster /var/lib/yardmaster \
 && cp -a bin dist node_modules package.json LICENSE deploy/container/healthcheck.mjs /opt/yardmaster/ \
 && if [ -d dashboard/dist ]; then mkdir /opt/yardmaster/dashboard && cp -a dashboard/dist /opt/yardmaster/dashboard/; fi \
 && chown -R 0:0 /opt/yardmaster && chmod -R a=rX,u+w /opt/yardmaster && chmod 755 /opt/yardmaster/bin/yardmaster
# What Node compiles at a start is kept here: the root of a running container can't be written to.
RUN for role in gateway control agent; do NODE_COMPILE_CACHE=/opt/yardmaster/compile /opt/yardmaster/bin/yardmaster $role --help; done \
 && chmod -R a=rX,u+w /opt/yardmaster/compile

FROM ${AGENT_BASE} AS agent
COPY --from=build /usr/local/bin/node /usr/local/bin/node
COPY --from=build /opt/yardmaster /opt/yardmaster
COPY --from=build --chown=10001:10001 /var/lib/yardmaster /var/lib/yardmaster
ENV NODE_COMPILE_CACHE=/opt/yardmaster/compile HOME=/var/lib/yardmaster
WORKDIR /var/lib/yardmaster
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/yardmaster/bin/yardmaster"]
CMD ["agent", "--data-dir", "/var/lib/yardmaster/agent", "--log-format", "json"]

FROM ${NODE_IMAGE} AS yardmaster
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Yardmaster" \
      org.opencontainers.image.description="Gateway and control plane for GPU inference: one OpenAI-compatible address in front of many engines" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# What could fetch and run other code is not there.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /usr/local/bin/yarn /usr/local/bin/yarnpkg /opt/yarn*
COPY --from=build /opt/yardmaster /opt/yardmaster
COPY --from=build --chown=10001:10001 /var/lib/yardmaster /var/lib/yardmaster
ENV NODE_COMPILE_CACHE=/opt/yardmaster/compile HOME=/var/lib/yardmaster
WORKDIR /var/lib/yardmaster
VOLUME ["/var/lib/yardmaster"]
USER 10001:10001
EXPOSE 8200 8300
STOPSIGNAL SIGTERM
# A control plane or another port: set YARDMASTER_HEALTH_URL.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["node", "/opt/yardmaster/healthcheck.mjs"]
ENTRYPOINT ["/opt/yardmaster/bin/yardmaster"]
CMD ["--help"]
