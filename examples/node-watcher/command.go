// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/meshcni/meshcni/examples/internal/podnews"
	"github.com/meshcni/meshcni/examples/node-watcher/internal/answers"
	"github.com/meshcni/meshcni/examples/node-watcher/internal/presence"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/footprint"
)

// The program's exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Settings of the garbage collector: this process lives long and makes little garbage.
const (
	gcPercent   = 50
	memoryLimit = 64 << 20 // soft
)

// options are the command line's.
type options struct {
	server answers.Server
	node   string
	dir    string
	// installation is the ConfigMap that is removed only at the end of the installation, as
	// namespace/name; empty if none is watched.
	installation string
	repair       string // a repairconf.Config, as JSON; empty: pods are only watched
	feed         string // the socket of ambient mode's feed; empty: no agent is fed
	ambient      string // an ambientconf.Config, as JSON
	level        slog.Level
	about        bool // print the version, and exit
	// silence is for how long the API server may stay silent.
	silence time.Duration
}

const usage = `node-watcher knows the pods of one node, and answers for them on a unix socket.
install-cni starts it, and ends it by closing its standard input.

Example:
  node-watcher -node=node-1 -dir=/run/watcher -server=https://10.96.0.1:443 -token=token -ca-file=ca.crt

Exit codes: 0 stopped, 1 failure, 2 wrong command line.

Flags:
`

func parse(env environment) (options, error) {
	var o options
	flags := flag.NewFlagSet("node-watcher", flag.ContinueOnError)
	flags.SetOutput(env.stderr)
	flags.Usage = func() {
		fmt.Fprint(env.stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.about, "version", false, "print the version, and end")
	flags.StringVar(&o.node, "node", "", "`name` of the node")
	flags.StringVar(&o.dir, "dir", "", "`directory` for the socket, which no other user may write to")
	flags.StringVar(&o.server.URL, "server", "", "`URL` of the API server")
	flags.StringVar(&o.server.TokenFile, "token", "", "`file` with the bearer token; it is read again when it changes")
	flags.StringVar(&o.server.CAFile, "ca-file", "", "`file` with the certificates of the API server's CA")
	flags.BoolVar(&o.server.Insecure, "skip-tls-verify", false, "don't verify the API server's certificate")
	flags.StringVar(&o.installation, "installation", "",
		"the ConfigMap, as `namespace/name`, that only the end of the installation removes; empty: it isn't watched")
	flags.StringVar(&o.repair, "repair", "", "what is to be done about pods that are not captured, as `JSON`; empty: nothing")
	flags.StringVar(&o.feed, "feed", "", "`socket` to make for the agent of ambient mode (docs/ambient-feed.md), in a directory that "+
		"no other user may write to; empty: none, and no namespaces are watched")
	flags.StringVar(&o.ambient, "ambient", "{}", "settings of ambient mode as `JSON`")
	flags.DurationVar(&o.silence, "silence", 3*time.Minute,
		"for how `long` the API server may be silent until this program isn't ready; a quiet watch has an answer about once a minute")
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "`level` of the log")
	if err := flags.Parse(env.args); err != nil {
		return o, err
	}
	if o.about {
		return o, nil
	}
	if flags.NArg() > 0 || o.node == "" || o.dir == "" || o.server.URL == "" {
		return o, fmt.Errorf("-node, -dir and -server are needed, and nothing but flags")
	}
	if o.silence <= 0 {
		return o, fmt.Errorf("-silence=%s: give a time above zero, such as 3m", o.silence)
	}
	return o, nil
}

func run(ctx context.Context, env environment) int {
	o, err := parse(env)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "node-watcher: %v\n", err)
		return exitUsage
	}
	if o.about {
		fmt.Fprintf(env.stdout, "node-watcher %s\n", env.version)
		return exitOK
	}
	log := slog.New(slog.NewJSONHandler(env.stderr, &slog.HandlerOptions{Level: o.level}))
	klog.SetSlogLogger(slog.New(quiet{log.Handler()}))
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	if err := watch(ctx, env, o, log); err != nil {
		log.Error("ended", "error", err)
		return exitFailure
	}
	return exitOK
}

func watch(ctx context.Context, env environment, o options, log *slog.Logger) error {
	memory := footprint.NewTrimmer(footprint.Options{Quiet: env.trimAfter, Trim: env.trim, Log: log})
	defer memory.Stop()
	tasks, err := prepare(ctx, env, o, memory, log)
	if err != nil {
		return err
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	for _, work := range tasks {
		group.Go(func() { end(work(working)) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the process is being stopped
	}
	return context.Cause(working)
}

// task works until its context ends. The end of one is that of all.
type task func(context.Context) error

// prepare returns what this process does. The sockets exist when it returns.
func prepare(ctx context.Context, env environment, o options, memory *footprint.Trimmer, log *slog.Logger) ([]task, error) {
	say := &announcer{to: env.stdout, log: log, memory: memory}
	keep, err := namesToKeep(o)
	if err != nil {
		return nil, err
	}
	pods, err := answers.New(answers.Options{
		Server: o.server, Node: o.node, Version: env.version, Log: log, OnStatus: say.status, OnPod: say.pod, Silence: o.silence, Keep: keep,
	})
	if err != nil {
		return nil, err
	}
	if err := countChanges(pods.Informer(), memory); err != nil {
		return nil, err
	}
	tasks := []task{pods.Run}
	installation, err := newInstallation(o, env.version, log, say)
	if err != nil {
		return nil, err
	}
	if installation != nil {
		tasks = append(tasks, func(ctx context.Context) error { installation.Run(ctx); return nil })
	}
	if o.repair != "" {
		after, err := newRepairer(o.repair, pods, o, env.version, log, say.line)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, after.run)
	}
	listener, err := agentserver.Listen(ctx, o.dir)
	if err != nil {
		return nil, err
	}
	server := agentserver.Server{Pods: asked{pods, memory}, Status: pods, OnError: func(err error) { log.Warn("a request failed", "error", err) }}
	tasks = append(tasks, func(ctx context.Context) error { return server.Serve(ctx, listener) })
	if o.feed == "" {
		return tasks, nil
	}
	fed, err := newFeeder(ctx, pods, o, env.version, memory, log)
	if err != nil {
		_ = listener.Close() // it would say that it is closed
		return nil, err
	}
	return append(tasks, fed.run), nil
}

// newInstallation creates the watch on the object that is removed only at the end of the
// installation; nil if no object is named.
func newInstallation(o options, version string, log *slog.Logger, say *announcer) (*presence.Watch, error) {
	if o.installation == "" {
		return nil, nil
	}
	w, err := presence.New(presence.Options{
		Config: o.server.Config(version), Object: o.installation, Log: log,
		Observe: func(there bool) { say.line(podnews.Presence{Installed: &there}) },
	})
	if err != nil {
		return nil, fmt.Errorf("-installation: %w", err)
	}
	return w, nil
}

// announcer reports the node-watcher's state on standard output.
type announcer struct {
	log    *slog.Logger
	memory *footprint.Trimmer

	mu sync.Mutex
	to io.Writer
}

func (a *announcer) status(status podsource.AgentStatus) {
	a.memory.Worked()
	a.line(status)
}

// pod reports a pod, so that the daemon need not ask; pod is nil if the daemon must forget it.
func (a *announcer) pod(ref podsource.Ref, pod *interception.Pod) {
	news, err := podnews.Of(ref, pod)
	if err != nil {
		a.log.Warn("can't tell the daemon about a pod; it has to ask", "pod", ref.String(), "error", err)
	}
	a.line(news)
}

// line writes a value as a line of JSON.
func (a *announcer) line(what any) {
	line, err := json.Marshal(what)
	if err == nil {
		a.mu.Lock()
		_, err = a.to.Write(append(line, '\n'))
		a.mu.Unlock()
	}
	if err != nil {
		a.log.Warn("can't report progress to the daemon", "error", err)
	}
}

// quiet moves client-go's own log to debug level: the node-watcher itself reports what matters of
// it.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
