// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

type reading struct {
	Snapshot
	root   *os.Root
	onNode string // the directory's path on the node, for absolute targets of links
}

// readSnapshot reads the relevant files of a directory, and nothing outside of it: a link that
// leads out is not followed.
func readSnapshot(directory, onNode string, claim Claim) (Snapshot, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	var s Snapshot
	for range 3 { // a file that is renamed meanwhile may be missed under both names
		before, err := relevantNames(root)
		if err != nil {
			return nil, err
		}
		r := reading{Snapshot{}, root, onNode}
		if err = r.all(before, claim); err != nil {
			return nil, err
		}
		s = r.Snapshot
		after, err := relevantNames(root)
		if err != nil || slices.Equal(before, after) {
			return s, err
		}
	}
	return s, nil
}

// relevantNames returns the names of the relevant files in a directory.
func relevantNames(root *os.Root) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root.Name(), err)
	}
	var names []string
	for _, entry := range entries {
		if relevant(entry.Name()) && !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// all reads the files of these names, and those that they and the claim lead to.
func (r reading) all(names []string, claim Claim) error {
	for _, name := range names {
		r.read(name)
	}
	for _, p := range claim.places {
		if p.Link == "" {
			continue
		}
		// If a directory above it is a link now, the file has another path.
		if route, err := filesystem.Follow(r.root, p.File, r.onNode); err == nil && route.Target == p.File {
			r.readTarget(p.File)
		}
	}
	for _, network := range r.networks(claim) {
		if err := r.readNetwork(network); err != nil {
			return fmt.Errorf("list %s in %s: %w", network, r.root.Name(), err)
		}
	}
	return nil
}

// networks returns the directories of drop-ins, of the networks in the files and in the claim.
func (s Snapshot) networks(claim Claim) []string {
	var names []string
	for name, f := range s {
		if path.Ext(name) != listExtension || f.Err != nil {
			continue
		}
		if network, err := conflist.LoadNetwork(f.Data, true); err == nil && network.DropIns() {
			names = append(names, network.Name)
		}
	}
	for _, p := range claim.places {
		if p.Mode == DropIn {
			names = append(names, path.Dir(p.File))
		}
	}
	return names
}

// readNetwork reads a directory of drop-ins. Anything else in its place is recorded as what it is.
func (r reading) readNetwork(network string) error {
	info, err := r.root.Lstat(network)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Snapshot[network] = File{Mode: info.Mode(), Time: info.ModTime()}
	if !info.IsDir() {
		r.Snapshot[network] = File{Mode: info.Mode(), Err: errors.New("it has the name of the network's directory, but is not a directory")}
		return nil
	}
	entries, err := fs.ReadDir(r.root.FS(), network)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if path.Ext(strings.TrimSuffix(entry.Name(), backupSuffix)) == ".conf" && !entry.IsDir() {
			r.read(path.Join(network, entry.Name()))
		}
	}
	return nil
}

// read reads one file, once. A file that has vanished meanwhile counts as missing.
func (r reading) read(name string) {
	if _, done := r.Snapshot[name]; done {
		return
	}
	info, err := r.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.Snapshot[name] = File{Err: err}
		return
	}
	f := File{Mode: info.Mode(), Time: info.ModTime(), Foreign: filesystem.Foreign(info)}
	switch {
	case info.Mode().IsRegular():
		f.Data, f.Err = readFile(r.root, name)
	case info.Mode()&fs.ModeSymlink != 0:
		f = r.readLink(name, f)
	}
	if !errors.Is(f.Err, fs.ErrNotExist) {
		r.Snapshot[name] = f
	}
}

func (r reading) readLink(name string, link File) File {
	route, err := filesystem.Follow(r.root, name, r.onNode)
	link.Through = route.Through
	switch {
	case errors.Is(err, filesystem.ErrOutside):
		link.Err = fmt.Errorf("it is a symbolic link, and %w: put the file itself into the directory, or make the link lead to one there", err)
		return link
	case err != nil:
		link.Err = fmt.Errorf("it is a symbolic link, and cannot be followed: %w", err)
		return link
	}
	r.readTarget(route.Target)
	switch target, there := r.Snapshot[route.Target]; {
	case !there && route.Target != ".":
		link.Err = fmt.Errorf("it is a symbolic link, and cannot be followed: %w: %s has gone", filesystem.ErrNowhere, route.Target)
	case target.Err != nil:
		link.Err = fmt.Errorf("it is a symbolic link to %s: %w", route.Target, target.Err)
	case !target.Mode.IsRegular():
		link.Err = fmt.Errorf("%w that is a configuration: %s is not a regular file", filesystem.ErrNowhere, route.Target)
	default:
		link.Target, link.Data, link.Time, link.Foreign = route.Target, target.Data, target.Time, target.Foreign
	}
	return link
}

// readTarget reads the target of a link, and records the target's directory.
func (r reading) readTarget(file string) {
	if file == "." {
		return
	}
	r.read(file)
	if above := path.Dir(file); above != "." {
		r.read(above)
	}
}

func readFile(root *os.Root, name string) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would block otherwise
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, filesystem.ErrNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(file, conflist.MaxSize+1))
	if err == nil && len(data) > conflist.MaxSize {
		return nil, fmt.Errorf("larger than %d bytes: this is not a network configuration, move it away", conflist.MaxSize)
	}
	return data, err
}
