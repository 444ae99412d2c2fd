// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

// Pod is a pod, by what distinguishes its network namespace from others.
type Pod struct {
	Namespace, Name, UID string
	// HostNetwork is true of a pod in the host's network namespace, which is never returned.
	HostNetwork bool
	// IPs are the pod's addresses. One of IPv4 may be in the form of IPv6 (::ffff:10.244.1.10).
	IPs []netip.Addr
	// Containers are the ids of the pod's containers, without the runtime's name and "://". They may
	// be missing: most runtimes have the pod's UID in the cgroups too.
	Containers []string
}

// hasOneOf reports whether one of the addresses is the pod's.
func (p Pod) hasOneOf(addresses []netip.Addr) bool {
	return slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return slices.Contains(addresses, a.Unmap()) })
}

// String returns namespace and name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Finder finds the network namespaces of a node's pods, and has their [Records]. It is safe for
// concurrent use. Create it with [NewFinder].
type Finder struct {
	*Records
}

// NewFinder returns a Finder, and reads nothing yet. The error is about the roots; on other systems
// than Linux it wraps [interception.ErrUnsupported].
func NewFinder(r Roots) (*Finder, error) {
	if err := errors.Join(r.validate(), supported()); err != nil {
		return nil, fmt.Errorf("find network namespaces of pods: %w", err)
	}
	return &Finder{newRecords(r)}, nil
}

// Found is a pod's network namespace.
type Found struct {
	// Netns is the open namespace. The caller closes it.
	Netns *interception.Netns
	// Leads are those that count.
	Leads []Lead
	// Attachment is the pod's network as plugins know it, for the pod's first interface; zero if
	// nothing on the node tells.
	Attachment journal.Attachment
	// Path is where the runtime has mounted the namespace, in its own file system; empty if it is
	// not known.
	Path string
}

// Find finds the network namespace of the pod by its UID, and opens it. It changes nothing. The
// error is a [*RefusalError], or the context's.
func (f *Finder) Find(ctx context.Context, pod Pod) (*Found, error) { return f.find(ctx, pod, true) }

// FindToRead is Find for a caller that only reads. It looks at processes only if neither the
// plugin's record nor libcni's cache leads to the pod, so it may return a namespace that another
// pod shares.
func (f *Finder) FindToRead(ctx context.Context, pod Pod) (*Found, error) {
	return f.find(ctx, pod, false)
}

// Finding is what a search for several pods has found of one of them: either Found or Err is set.
type Finding struct {
	Found *Found
	// Err is a [*RefusalError], or the context's error.
	Err error
}

// FindAll is Find for many pods, such as all of the node. It returns a Finding for each pod, in
// their order, and reads the node's processes, records and cache only once. When the context ends,
// it returns what it has found, for the caller to close, and the context's error for the other
// pods.
func (f *Finder) FindAll(ctx context.Context, pods []Pod) []Finding { return f.findAll(ctx, pods) }

// Roots are the directories of the node's files, as this process sees them. In a container each is
// a mount of the host's directory. An empty one is not searched, except Proc. Each of them can lead
// to a pod when the others do not.
type Roots struct {
	// Proc is a proc file system whose process 1 is the host's; "/proc" if empty. Opening other
	// users' namespaces through it takes CAP_SYS_PTRACE.
	Proc string
	// Netns are the directories in which container runtimes mount network namespaces: "/run/netns",
	// and "/run/docker/netns" for Docker. In a container they need mountPropagation
	// HostToContainer; otherwise later mounts are invisible.
	Netns []string
	// Results is libcni's cache of results: "/var/lib/cni/results".
	Results string
	// Journal is the directory in which the plugin records what it applies; see package
	// interception/journal.
	Journal string
}

// validate returns an error for each path that is not absolute.
func (r Roots) validate() error {
	var errs []error
	for _, path := range append([]string{r.Proc, r.Results, r.Journal}, r.Netns...) {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("the path %q is not absolute", path))
		}
	}
	return errors.Join(errs...)
}

func (r Roots) proc() string { return cmp.Or(r.Proc, "/proc") }

// Verify returns the open file as a namespace, if it is a network namespace that has one of the
// pod's addresses and is neither the host's nor this process's own. Others hand such files over,
// for example on a socket. Verify searches for nothing, and trusts the sender to mean this pod,
// which needs no UID here: any program that can enter a namespace may give it any address.
//
// It takes ownership of the file, and closes it on an error. The error is a [*RefusalError]. It
// wraps [interception.ErrNotNetns] if the obstacle is [ObstacleNotNetns], and
// [interception.ErrHostNetns] if it is [ObstacleHostNetwork] and the pod is not in the host's
// network itself. A nil file is no namespace. On other systems than Linux the error is
// [interception.ErrUnsupported].
func (f *Finder) Verify(pod Pod, file *os.File) (*interception.Netns, error) {
	return f.verify(pod, file, f.options())
}

// VerifyOwn is Verify, but accepts this process's own namespace unless it is the host's: for an
// agent that is itself in a pod.
func (f *Finder) VerifyOwn(pod Pod, file *os.File) (*interception.Netns, error) {
	options := f.options()
	options.Own = true
	return f.verify(pod, file, options)
}

func (r *Records) options() interception.NetnsOptions {
	return interception.NetnsOptions{ProcRoot: r.roots.proc()}
}
