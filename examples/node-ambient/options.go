// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// The program's exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// options are the command line's.
type options struct {
	feed, events, proxy string // sockets
	journal             string
	settings            ambientconf.Config
	roots               podnetns.Roots
	hostRoot            string
	level               slog.Level
	about               bool // print the version, and exit
}

const usage = `node-ambient keeps the pods of one node in ambient mode.
It ends when its standard input does.

Example:
  node-ambient -feed=/run/watcher/feed.sock -events=/run/istio-cni/pluginevent.sock \
    -proxy=/run/ztunnel/ztunnel.sock -journal=/run/istio-cni/ambient -settings='{"proxyNamespace":"istio-system"}'

Exit codes: 0 stopped, 1 failure, 2 wrong command line.

Flags:
`

func parse(env environment) (o options, err error) {
	flags := flag.NewFlagSet("node-ambient", flag.ContinueOnError)
	flags.SetOutput(env.stderr)
	flags.Usage = func() {
		fmt.Fprint(env.stderr, usage)
		flags.PrintDefaults()
	}
	var settings, netns string
	flags.BoolVar(&o.about, "version", false, "print the version, and end")
	flags.StringVar(&o.feed, "feed", "", "`socket` of the source of pods (docs/ambient-feed.md)")
	flags.StringVar(&o.events, "events", "", "`socket` to make for the CNI plugin, in a directory that no other user may write to")
	flags.StringVar(&o.proxy, "proxy", "",
		"`socket` to make for the proxy in the pods, likewise; with mode node it is for pods that move from mode in-pod")
	flags.StringVar(&o.journal, "journal", "",
		"`directory` of the records, for this program alone; it has to end with the node's boot, as /run does. "+
			"Beside it is a lock, with the suffix .lock, and with mode node a file about the node's proxies, with the suffix .node.json")
	flags.StringVar(&settings, "settings", "{}", "settings of ambient mode as `JSON`")
	flags.StringVar(&o.roots.Proc, "proc", "/proc", "the host's proc file `system`")
	flags.StringVar(&netns, "netns", "/run/netns", "`directories` in which container runtimes mount network namespaces, separated by commas")
	flags.StringVar(&o.roots.Results, "results", "", "`directory` of libcni's cache of results; empty: it is not searched")
	flags.StringVar(&o.hostRoot, "host-root", "/",
		"where the host's file system is mounted, a `directory`, for the paths that Istio's plugin sends")
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "`level` of the log")
	if err := flags.Parse(env.args); err != nil {
		return o, err
	}
	if o.about {
		return o, nil
	}
	if flags.NArg() > 0 || o.feed == "" || o.events == "" || o.journal == "" {
		return o, errors.New("-feed, -events and -journal are needed, and nothing but flags")
	}
	if netns != "" {
		o.roots.Netns = strings.Split(netns, ",")
	}
	if o.settings, err = ambientconf.Parse(settings); err != nil {
		return o, fmt.Errorf("-settings: %w", err)
	}
	if o.proxy == "" && !o.settings.OnNode() {
		return o, errors.New("-proxy is needed, unless the mode is node")
	}
	return o, nil
}
