// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrBusy means that other programs held the spool for all the time that the caller could wait.
var ErrBusy = errors.New("other processes are using it; nothing has to be done, but what was to be kept is lost")

// Spool is a place for lines.
type Spool struct {
	// Path is the file's path. Its directory must exist.
	Path string
	// MaxBytes is the approximate maximum size of the file, and of the one with the older lines.
	MaxBytes int64
}

// older is the file with the older lines, taken the one that is being collected.
func (s Spool) older() string { return s.Path + ".1" }
func (s Spool) taken() string { return s.Path + ".taken" }

// Append keeps text, which is one line or several, all together; it adds a missing line end. The
// file is created for its owner alone. Append refuses a file that belongs to another user, that
// others may read or write, or that is not regular.
func (s Spool) Append(text []byte) error {
	if int64(len(text)) > s.MaxBytes {
		return fmt.Errorf("append to %s: %d bytes, and there is room for %d", s.Path, len(text), s.MaxBytes)
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	for range attempts {
		done, err := s.append(text)
		if err != nil {
			return fmt.Errorf("append to %s: %w", s.Path, err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("append to %s: %w", s.Path, ErrBusy)
}

// attempts bounds how often the file may be moved between its opening and its lock.
const attempts = 5

// append returns false if the file was moved meanwhile, or has just been moved by append itself.
func (s Spool) append(text []byte) (done bool, err error) {
	file, err := open(s.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // the error of Write counts
	if err := lock(context.Background(), file, shared); err != nil {
		return false, err
	}
	info, moved, err := s.look(file)
	if err != nil || moved {
		return false, err
	}
	if info.Size()+int64(len(text)) > s.MaxBytes && info.Size() > 0 {
		return false, s.rotate(file, s.older())
	}
	if last := make([]byte, 1); info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return false, err
		}
		if last[0] != '\n' { // a program was killed here, or the disk was full
			text = append([]byte("\n"), text...)
		}
	}
	_, err = file.Write(text)
	return err == nil, err
}

// look reports whether the open file is no longer the one at the path.
func (s Spool) look(file *os.File) (info fs.FileInfo, moved bool, err error) {
	info, err = file.Stat()
	if err != nil {
		return nil, false, err
	}
	now, err := os.Lstat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return info, true, nil
	}
	return info, err == nil && !os.SameFile(info, now), err
}

// rotate renames the file at the path once no program appends to it any more.
func (s Spool) rotate(file *os.File, to string) error {
	if err := lock(context.Background(), file, exclusive); err != nil {
		return err
	}
	if _, moved, err := s.look(file); err != nil || moved {
		return err
	}
	return os.Rename(s.Path, to)
}

// Collect passes all lines to take, oldest first, in batches of whole lines, and removes a batch
// when take returns nil. After an error of take the same lines come again the next time. Only one
// collector may run at a time; it ends early with ctx.
func (s Spool) Collect(ctx context.Context, take func(lines [][]byte) error) error {
	for ctx.Err() == nil {
		found, err := s.next()
		if err == nil && found {
			err = s.hand(take)
		}
		if err != nil {
			return fmt.Errorf("collect %s: %w", s.Path, err)
		}
		if !found {
			return nil
		}
	}
	return fmt.Errorf("collect %s: %w", s.Path, context.Cause(ctx))
}

// next moves the oldest file to taken, unless that exists already.
func (s Spool) next() (found bool, err error) {
	if _, err := os.Lstat(s.taken()); err == nil {
		return true, nil
	}
	if err := os.Rename(s.older(), s.taken()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	file, err := open(s.Path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // nothing is written through it
	if err := s.rotate(file, s.taken()); err != nil {
		return false, err
	}
	return true, nil
}

func (s Spool) hand(take func(lines [][]byte) error) error {
	file, err := open(s.taken(), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // another program has moved the file; the next one follows
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()                                          //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(file, 2*s.MaxBytes)) // concurrent appends may exceed the limit
	if err != nil {
		return err
	}
	var lines [][]byte
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		if err := take(lines); err != nil {
			return err
		}
	}
	return os.Remove(s.taken())
}

// maxPlugin is the size limit of the plugin's spools.
const maxPlugin = 1 << 20

// PluginLog returns the spool in which the CNI plugin of a name keeps its log lines while the node
// agent is not running, in the agent's run directory.
func PluginLog(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".log"), MaxBytes: maxPlugin}
}

// PluginResults returns the spool in which the plugin keeps the results of its commands, each a
// line of JSON as on the agent's socket.
func PluginResults(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".results"), MaxBytes: maxPlugin}
}

// IstioLogSocket is the socket in the run directory on which Istio's node agent, and install-cni in
// its place, receives log lines that are not spooled: POST /log, an array of strings, each a line
// of JSON as Istio's own plugin logs it (istio/istio, cni/pkg/log/uds.go). The protocol has no
// version.
const IstioLogSocket = "log.sock"
