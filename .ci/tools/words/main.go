// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program: it takes the arguments and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	directory := "."
	if len(args) > 0 {
		directory = args[0]
	}
	complaints, err := check(os.DirFS(directory))
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "words: %v\n", err)
		return 1
	}
	for _, complaint := range complaints {
		_, _ = fmt.Fprintln(stdout, complaint)
	}
	return min(len(complaints), 1)
}

// check returns what is wrong with the texts of a tree.
func check(tree fs.FS) ([]string, error) {
	glossary, err := readGlossary(tree)
	if err != nil {
		return nil, err
	}
	exceptions, err := readExceptions(tree)
	if err != nil {
		return nil, err
	}
	var complaints []string
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipped(name)
		}
		lines, err := read(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if found := glossary.complaints(name, lines); !exceptions.cover(name, len(found) > 0) {
			complaints = append(complaints, found...)
		}
		return nil
	})
	return append(complaints, exceptions.complaints()...), err
}

// skipped leaves out what is not written here: git's own files, what make builds, and the files
// that tests read.
func skipped(directory string) error {
	switch path.Base(directory) {
	case ".git", "bin", "testdata":
		return fs.SkipDir
	}
	return nil
}
