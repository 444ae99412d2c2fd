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

// ErrBusy means that others held the spool all the time that was left to wait.
var ErrBusy = errors.New("others are at work on it; nothing has to be done, what was to be kept is lost")

// Spool is where lines are kept.
type Spool struct {
	// Path is the file's path. Its directory has to be there.
	Path string
	// MaxBytes is about how large the file may be, and the one with the lines before those as well.
	MaxBytes int64
}

// older is the file with the lines before those in the first one, taken the one that is being collected.
func (s Spool) older() string { return s.Path + ".1" }
func (s Spool) taken() string { return s.Path + ".taken" }

// Append keeps text, which is one line or several; an end of line is added where there is none. All of it stands together. The file is
// made for its owner alone; one of another user, or that others may read or write, or that is no regular file, is refused.
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

// attempts is how often the file may have been moved away between its opening and its lock.
const attempts = 5

// append is not done when the file was moved away meanwhile, or has been just now.
func (s Spool) append(text []byte) (done bool, err error) {
	file, err := open(s.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // what Write says counts
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
		if last[0] != '\n' { // somebody was killed here, or the disk was full
			text = append([]byte("\n"), text...)
		}
	}
	_, err = file.Write(text)
	return err == nil, err
}

// look says whether the file that is open is no longer the one at the path.
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

// rotate moves the file at the path away, once nobody appends to it any more.
func (s Spool) rotate(file *os.File, to string) error {
	if err := lock(context.Background(), file, exclusive); err != nil {
		return err
	}
	if _, moved, err := s.look(file); err != nil || moved {
		return err
	}
	return os.Rename(s.Path, to)
}

// Collect hands over all that was kept, oldest first, in pieces of whole lines, and forgets what take returns nil for. After an error of
// take the same lines come again the next time. One collector at a time; it ends early with ctx.
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

// next puts the oldest file aside, unless one is aside already.
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
	if errors.Is(err, fs.ErrNotExist) { // a program moved the file away that was to be taken: there is another one now
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()                                          //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(file, 2*s.MaxBytes)) // those who append at once don't see each other's lines
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

// maxPlugin is how large a spool of the plugin's may be.
const maxPlugin = 1 << 20

// PluginLog is where the CNI plugin of a name keeps lines of its log for a node agent that isn't there, in the agent's run directory.
func PluginLog(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".log"), MaxBytes: maxPlugin}
}

// PluginResults is where it keeps what its commands came to, each a line of JSON as on the agent's socket.
func PluginResults(runDir, name string) Spool {
	return Spool{Path: filepath.Join(runDir, name+".results"), MaxBytes: maxPlugin}
}

// IstioLogSocket is the socket in the run directory at which Istio's node agent, and install-cni in
// its place, takes log lines that are not spooled: POST /log, an array of strings, each a line of
// JSON as Istio's own plugin logs it (istio/istio, cni/pkg/log/uds.go). The protocol has no version.
const IstioLogSocket = "log.sock"
