// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/namespace"
)

// census is what a search reads of the node, for one pod or for all: each part once, when it is
// first needed. An error of processes and suspects is the context's.
type census struct {
	records   func() (map[string]indexed[journal.Record], error)
	results   func() (map[string]indexed[result], error)
	processes func() (*walk, error)
	suspects  func() ([]suspect, error)
}

func (r *Records) newCensus(ctx context.Context) *census {
	c := &census{records: sync.OnceValues(r.known.entries), results: sync.OnceValues(r.results.entries)}
	c.processes = sync.OnceValues(func() (*walk, error) { return walkProcesses(ctx, r.roots.proc()) })
	c.suspects = sync.OnceValues(func() ([]suspect, error) { return r.lookEverywhere(ctx, c) })
	return c
}

// suspect is a namespace on the node, with its addresses. With err, it is a directory that cannot
// be read.
type suspect struct {
	lead      Lead
	addresses []netip.Addr
	err       error
}

// lookEverywhere looks into all namespaces that runtimes have mounted or processes are in.
func (r *Records) lookEverywhere(ctx context.Context, c *census) ([]suspect, error) {
	var all []suspect
	for _, directory := range r.roots.Netns {
		names, err := os.ReadDir(directory)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, suspect{lead: Lead{Source: SourceNetns, At: directory}, err: err})
		}
		for _, entry := range names {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			path := filepath.Join(directory, entry.Name())
			if ns, err := interception.OpenNetns(path, r.options()); err == nil {
				all = appendSuspect(all, Lead{Source: SourceNetns, At: path}, ns)
			}
		}
	}
	walked, err := c.processes()
	if err != nil {
		return nil, err
	}
	for _, seen := range walked.first {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p, err := openProcess(r.roots.proc(), seen.pid)
		if err != nil {
			continue // the process has ended
		}
		if ns, err := p.netns(r.options()); err == nil {
			all = appendSuspect(all, Lead{Source: SourceProcesses, At: seen.String()}, ns)
		}
		p.close()
	}
	return all, nil
}

// appendSuspect appends an open namespace, which it closes.
func appendSuspect(all []suspect, lead Lead, ns *interception.Netns) []suspect {
	defer ns.Close() //nolint:errcheck // the namespace is only read
	lead.Netns = ns.ID()
	addresses, err := namespace.Addresses(ns.File())
	if err != nil {
		return all
	}
	return append(all, suspect{lead: lead, addresses: addresses})
}
