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

// readSnapshot reads what matters in a directory, and never what is elsewhere: a link that leads out of it is not followed.
func readSnapshot(directory string, claim Claim) (Snapshot, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	var s Snapshot
	for range 3 { // a file that is renamed meanwhile may be seen under neither name
		before, err := relevantNames(root)
		if err != nil {
			return nil, err
		}
		if s, err = readOnce(root, before, claim); err != nil {
			return nil, err
		}
		after, err := relevantNames(root)
		if err != nil || slices.Equal(before, after) {
			return s, err
		}
	}
	return s, nil
}

// relevantNames lists the files in a directory that matter, by name.
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

func readOnce(root *os.Root, names []string, claim Claim) (Snapshot, error) {
	s := Snapshot{}
	for _, name := range names {
		s.read(root, name)
	}
	for _, network := range s.networks(claim) {
		if err := s.readNetwork(root, network); err != nil {
			return nil, fmt.Errorf("list %s in %s: %w", network, root.Name(), err)
		}
	}
	return s, nil
}

// networks names the directories of drop-ins: of the networks that the files name, and of the claim.
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

// readNetwork reads a directory of drop-ins. What stands in its place is noted for what it is.
func (s Snapshot) readNetwork(root *os.Root, network string) error {
	info, err := root.Lstat(network)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s[network] = File{Mode: info.Mode(), Time: info.ModTime()}
	if !info.IsDir() {
		s[network] = File{Mode: info.Mode(), Err: errors.New("it is in the place of the network's directory, and is none")}
		return nil
	}
	entries, err := fs.ReadDir(root.FS(), network)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if path.Ext(strings.TrimSuffix(entry.Name(), backupSuffix)) == ".conf" && !entry.IsDir() {
			s.read(root, path.Join(network, entry.Name()))
		}
	}
	return nil
}

// read reads one file. One that has vanished meanwhile isn't there.
func (s Snapshot) read(root *os.Root, name string) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s[name] = File{Err: err}
		return
	}
	f := File{Mode: info.Mode(), Time: info.ModTime(), Foreign: filesystem.Foreign(info)}
	switch {
	case info.Mode().IsRegular():
		f.Data, f.Err = readFile(root, name)
	case info.Mode()&fs.ModeSymlink != 0:
		if f.Data, f.Err = readFile(root, name); f.Err != nil {
			f.Err = errors.New("it is a symbolic link that leads out of the directory, or nowhere: replace it by the file itself")
		}
	}
	if !errors.Is(f.Err, fs.ErrNotExist) || info.Mode()&fs.ModeSymlink != 0 {
		s[name] = f
	}
}

func readFile(root *os.Root, name string) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would have us wait
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, filesystem.ErrNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(file, conflist.MaxSize+1))
	if err == nil && len(data) > conflist.MaxSize {
		return nil, fmt.Errorf("larger than %d bytes: this is no network configuration, move it away", conflist.MaxSize)
	}
	return data, err
}
