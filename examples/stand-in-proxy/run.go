// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
)

// The program's exit codes.
const (
	exitTold    = 0
	exitTrouble = 1
	exitUsage   = 2
	exitDied    = 3
)

func run(ctx context.Context, env environment) int {
	o, err := parse(env)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitTold
	case err == nil && o.askVersion:
		fmt.Fprintf(env.stdout, "stand-in-proxy %s\n", env.version)
		return exitTold
	}
	var s settings
	if err == nil {
		s, err = readSettings(env)
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "stand-in-proxy: %v\n", err)
		return exitUsage
	}
	if err := serve(ctx, env, o, s); errors.Is(err, errDied) {
		return exitDied
	} else if err != nil {
		fmt.Fprintf(env.stderr, "stand-in-proxy: %v\n", err)
		return exitTrouble
	}
	return exitTold
}

// errDied means that the proxy has ended as -exit-after says.
var errDied = errors.New("-exit-after")

// serve runs the proxy until it is told to end.
func serve(ctx context.Context, env environment, o options, s settings) error {
	if err := tryPrivileges(s.mark); err != nil {
		return err
	}
	ready := newReadiness()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", env.readiness)
	if err != nil {
		return fmt.Errorf("serve readiness probes: %w", err)
	}
	server := &http.Server{Handler: ready, ReadHeaderTimeout: headerTimeout}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()                       //nolint:errcheck // no probe matters any more
	log := slog.New(slog.NewJSONHandler(env.stderr, nil))
	proxy, err := ambienttest.StartProxy(proxyOptions(env, o, s, func(e ambienttest.Event) {
		ready.observe(e)
		report(log, e)
	}))
	if err != nil {
		return err
	}
	log.Info("started", "version", env.version, "socket", s.socket, "pods known", len(s.pods))
	err = await(ctx, env, o, proxy, func() {
		log.Info("draining", "at most", s.deadline.String())
		deadline, cancel := context.WithTimeout(ctx, s.deadline)
		defer cancel()
		proxy.Drain(deadline)
	})
	if broken := proxy.Close(); broken != nil {
		log.Error("the agent has broken the protocol", "error", broken.Error())
	}
	log.Info("ended")
	return err
}

func proxyOptions(env environment, o options, s settings, observe func(ambienttest.Event)) ambienttest.ProxyOptions {
	numbers := ambient.IstioNumbers()
	numbers.ProxyMark.Value = s.mark
	resolvers := o.resolvers
	if resolvers == nil {
		resolvers, _ = systemResolvers(env.resolvConf) // without any, queries have no listener
	}
	p := ambienttest.ProxyOptions{
		Socket: s.socket, Numbers: numbers, Transparent: true, Tunnels: s.tunnelled, Resolvers: resolvers, Strict: o.strict,
		Observe: observe, Faults: o.faults,
	}
	if o.refusal != "" {
		p.Refuse = func(zds.Workload) string { return o.refusal }
	}
	return p
}

// await returns when the process is told to end.
func await(ctx context.Context, env environment, o options, proxy *ambienttest.Proxy, drain func()) error {
	ended := make(chan struct{})
	if o.stdin {
		go func() {
			_, _ = io.Copy(io.Discard, env.stdin) // a broken input has ended, too
			close(ended)
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return nil
		case <-proxy.Done():
			return errDied
		case got := <-env.signals:
			switch got {
			case loseListeners:
				proxy.LoseListeners()
				continue
			case syscall.SIGTERM:
				drain()
			}
			return nil
		}
	}
}

// report logs what the proxy has done.
func report(log *slog.Logger, e ambienttest.Event) {
	var fields []any
	if e.Workload.UID != "" {
		fields = append(fields, "uid", e.Workload.UID)
	}
	if e.Workload.Name != "" {
		fields = append(fields, "pod", e.Workload.Namespace+"/"+e.Workload.Name)
	}
	if e.Err != nil {
		log.Error(string(e.Kind), append(fields, "error", e.Err.Error())...)
		return
	}
	log.Info(string(e.Kind), fields...)
}
