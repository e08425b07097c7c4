"""The code of every kind of error, with its page: what it means, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class ErrorCode:
    """The page of one code. `title`: a few words; `meaning`: what has happened; `advice`: what to do."""

    title: str
    meaning: str
    advice: str


# A code stays what it is: a new kind of error gets a new number, and the number of one that is gone is not used again.
CODES: Mapping[str, ErrorCode] = MappingProxyType(
    {
        "TM001": ErrorCode(
            "the command line is not understood",
            "A command, an option or an argument is not known, is missing, or does not go with another. Nothing was done.",
            "Run `tokenmill --help` for the commands, or `tokenmill COMMAND --help` for the options of one. Options are "
            "written in full: --rehash, not --reh.",
        ),
        "TM100": ErrorCode(
            "a setting or an argument is wrong",
            "A parameter, an argument of a command or of a Python call, or an entry of dvc.yaml cannot be used. The message "
            "names it, with what was found and what is allowed.",
            "Change the value to one that the message allows, and run the command again.",
        ),
        "TM101": ErrorCode(
            "params.yaml has an unknown key",
            "A section of params.yaml has a key that tokenmill does not read. An unknown key is an error, because a mistyped "
            "one would otherwise leave its setting unchanged without a word.",
            "Correct the key to the name that the message suggests, or delete the line. The params.yaml that `tokenmill init` "
            "writes has every key with its meaning.",
        ),
        "TM102": ErrorCode(
            "params.yaml has a value that is not allowed",
            "A key of params.yaml has a value of the wrong kind, or one outside its range. Some keys also depend on each other: "
            "a vocabulary has to hold its special tokens, for example.",
            "Set the key to one of the values that the message allows. Put a text in quotes where YAML would read a number, a "
            "date or a truth value.",
        ),
        "TM103": ErrorCode(
            "params.yaml lacks a key",
            "A key that tokenmill needs is not in params.yaml. There are no hidden defaults: every decision stands in the file. "
            "An upgrade of tokenmill can bring a new key.",
            "Make a new project with `tokenmill init NEW` and copy the missing line from its params.yaml. The comment beside it "
            "says what it does.",
        ),
        "TM104": ErrorCode(
            "params.yaml cannot be read",
            "The file is missing, is not UTF-8, or is not valid YAML. The message has the line of the mistake.",
            "Correct that line. A tab at its beginning, or a colon in a text without quotes, is often the reason.",
        ),
        "TM105": ErrorCode(
            "there is no project here",
            "The command works on a project, and there is no params.yaml in this folder or above it. The search ends at the "
            "root of a git repository.",
            "Go to the folder of a project, or make one with `tokenmill init DIR`. `tokenmill build` and `tokenmill status` "
            "also take the path of one with --params.",
        ),
        "TM106": ErrorCode(
            "params.yaml changed while the build ran",
            "A stage counts as done only when its parameters are those that it began with. Nothing was recorded of the stage "
            "that was at work.",
            "Run `tokenmill build` again. It uses the new parameters, and keeps the units that are finished and still fit.",
        ),
        "TM107": ErrorCode(
            "dvc.yaml does not fit the build",
            "dvc.yaml says what each stage reads and makes. Here it lacks something that the build needs: a folder of "
            "documents that is in no stage's deps, for example, whose changes DVC would not see.",
            "Change dvc.yaml as the message says. The dvc.yaml that `tokenmill init` writes is one that fits.",
        ),
        "TM108": ErrorCode(
            "the project's flows do not fit this tokenmill",
            "The Prefect engine runs the flows in the project's folder flows/. A file there is missing, cannot be imported, or "
            "its flow takes other arguments than this version of tokenmill gives.",
            "Compare the file with that of a new project, which `tokenmill init NEW` makes. To build without flows, set "
            "run.engine: inline in params.yaml.",
        ),
        "TM109": ErrorCode(
            "there is no such stage or artifact",
            "A stage that --only names, or an artifact that `tokenmill publish` names, is not in the project's dvc.yaml.",
            "Take one of the names that the message lists.",
        ),
        "TM110": ErrorCode(
            "too little memory is allowed",
            "run.memory_mb_max is what the whole build may hold. It is less than Python and its libraries need together with "
            "one worker. Or the system gave the process no more memory.",
            "Raise run.memory_mb_max to the number in the message, or more. run.engine: inline needs less than run.engine: "
            "threads. If the system refused, raise its limit (ulimit -v, or that of the container), or use fewer workers.",
        ),
        "TM111": ErrorCode(
            "the folder cannot become a project",
            "`tokenmill init` overwrites nothing. The folder holds a file that the project would have, or is itself a file.",
            "Name another folder, or move the files that the message lists away.",
        ),
        "TM112": ErrorCode(
            "code of the project failed",
            "A flow or a task in the folders flows/ and tasks/ of the project raised a Python exception; the message "
            "gives its file and line. These files belong to the project, so the mistake is there or in what they read.",
            "Correct the line that the message names, or what it reads. `--debug` prints the whole traceback.",
        ),
        "TM200": ErrorCode(
            "an input file cannot be used",
            "A file of documents, a document in it, or a text that was given to a Python call cannot be used as it is.",
            "Mend the file at the place that the message names, or make source.glob in params.yaml narrower so that it does "
            "not match the file.",
        ),
        "TM201": ErrorCode(
            "a document is bad",
            "A line or row of a file is not a document: it is not valid JSON, its text is null or is not valid UTF-8, or its "
            "messages make no conversation. The message has the file and the line or row.",
            "Mend or delete the document. To build without such documents, set source.on_bad_document: quarantine in "
            "params.yaml: they are then left out and kept in the quarantine, each with its place and the reason.",
        ),
        "TM202": ErrorCode(
            "a shard is damaged",
            "A file of documents is not whole: it was cut short, or has bytes that do not belong to its kind. A copy that was "
            "interrupted is the usual reason.",
            "Copy, download or make the file again. To build without what cannot be read of it, set source.on_bad_shard: "
            "quarantine in params.yaml.",
        ),
        "TM203": ErrorCode(
            "no file matches",
            "A glob, like source.glob or that of a named source in params.yaml, matches no file. Paths are seen from the "
            "project's folder, and files whose names begin with a dot are left out.",
            "Put documents where the glob looks, or change the glob. `**` stands for folders at any depth. If DVC "
            "tracks the documents, run `dvc pull` first.",
        ),
        "TM204": ErrorCode(
            "a file could not be read after several tries",
            "The disk or the network failed while a file was read. The read was tried again several times.",
            "Check the disk or the network share, then build again. Finished units are kept.",
        ),
        "TM205": ErrorCode(
            "a special token stands in a text",
            "A document holds the text of a special token, such as <|endoftext|>. Encoded as that token, it would look like "
            "the real end of a document to a model.",
            "Remove the text from the document. Otherwise choose in params.yaml, with encode.special_tokens_in_text, whether it "
            "becomes ordinary text or the token; in Python, the argument special_tokens_in_text does the same.",
        ),
        "TM206": ErrorCode(
            "a document is too large for the memory",
            "A document, or a Parquet page or Arrow record batch, which has to be loaded whole, is larger than one worker's "
            "share of run.memory_mb_max; or a .zst file was compressed with a window that is too large. The build stopped before "
            "loading it.",
            "Raise run.memory_mb_max, or lower run.workers so that each has a larger share. Otherwise cut the document, or "
            "compress the file again as the message says.",
        ),
        "TM207": ErrorCode(
            "the documents changed while the build ran",
            "A stage counts as done only when the files that it read are as it began with them. Nothing was recorded of the stage "
            "that was at work. Files that arrive while a build runs are no error, but under `dvc repro`.",
            "Run `tokenmill build` again when nothing writes into the folder of documents. Finished units of other files are "
            "kept.",
        ),
        "TM208": ErrorCode(
            "too many documents are bad",
            "More documents were left out than source.bad_documents_max allows, or damaged shards leave no document at all. A "
            "wrong text column is a common reason.",
            "Look at the first bad documents, which the message names. Mend them, or raise source.bad_documents_max.",
        ),
        "TM209": ErrorCode(
            "a column is missing or of the wrong kind",
            "A file of documents lacks the column or key that holds the text, the messages or the ids, or one that "
            "source.template names; or it has it twice, or has something else in it. The message has a line for each file, with "
            "the columns that it has.",
            "Set source.text_column, or the setting that the message names, to one of these columns. The setting holds for all "
            "files: if others have other names, rename the column in this file, or give each kind of file a named source with "
            "columns of its own in `sources`.",
        ),
        "TM210": ErrorCode(
            "several documents or files are bad",
            "A stage read all the documents that it could, and found more than one that it cannot use. The message has the "
            "first of them, each with its file, its line or row, and the reason.",
            "Mend or delete them. To build without them, set source.on_bad_document or source.on_bad_shard in params.yaml to "
            "quarantine.",
        ),
        "TM211": ErrorCode(
            "the list of documents to leave out cannot be used",
            "The file that source.drop names is missing, has other columns than id, digest and reason, or has a line that names "
            "no document or gives no reason. The message has the line.",
            "Correct the line. A digest is the sha256 of the text in UTF-8, 64 hexadecimal digits. If documents have no ids "
            "(source.id_column: null), name them by their digests.",
        ),
        "TM212": ErrorCode(
            "too many conversations are cut",
            "Conversations that are longer than encode.pack.length lose trained tokens: packing cuts their ends away, or drops "
            "them. There are more of them than encode.chat.cut_max allows.",
            "Raise encode.pack.length. Otherwise set encode.pack.long to split, which keeps all tokens, or raise "
            "encode.chat.cut_max.",
        ),
        "TM213": ErrorCode(
            "a shard is encrypted",
            "A Parquet file of documents is encrypted, as a whole or in some columns. tokenmill has no way to take its keys. The "
            "file is not damaged, so source.on_bad_shard does not leave it out.",
            "Write the file again without encryption, with the tool and the keys that it was made with. Otherwise make the glob "
            "in params.yaml narrower so that it does not match the file.",
        ),
        "TM214": ErrorCode(
            "a pointer stands in the place of a file",
            "Git LFS, git-annex and DVC keep large files outside git. In a clone that has not downloaded them, a small text file "
            "or a broken link stands in their place, and none of these is a document.",
            "Run the command that the message names: `git lfs pull`, `git annex get` or `dvc pull`. A copy of the repository as a "
            "ZIP file never has the files of Git LFS, so clone it instead.",
        ),
        "TM215": ErrorCode(
            "a file is read by no source",
            "With `source.sources_strict: true`, a build refuses files in data/raw that neither source.glob nor the glob of a "
            "named source matches. They would not be in the dataset.",
            "Add a source, or a glob to one, that matches them. Otherwise move them out of data/raw, or set "
            "source.sources_strict: false, with which a build only names them.",
        ),
        "TM301": ErrorCode(
            "a tokenizer is refused",
            "A tokenizer file cannot be read, or asks for something that tokenmill cannot do exactly. Ids, or lists of them, "
            "that are not in a vocabulary are refused under this code, too.",
            "Fetch or make the file again. `tokenmill check FILE` says what a tokenizer is and what is odd about it.",
        ),
        "TM302": ErrorCode(
            "a split pattern is refused",
            "The regex that cuts text into pre-tokens does not compile, has no known name, or gave up on a text.",
            "Take a pattern by its name, like gpt2 or o200k, or correct the regex at the place that the message shows.",
        ),
        "TM303": ErrorCode(
            "a table of counts is refused",
            "The table of pre-token counts has other columns than expected, was cut short, or counting would need more memory "
            "than it may have.",
            "Delete the file that the message names and run `tokenmill build`, which counts again. For memory, raise "
            "run.memory_mb_max or give run.spill_directory a disk with room.",
        ),
        "TM304": ErrorCode(
            "a chat template is refused",
            "The template that writes conversations is no valid Jinja, writes a token like bos_token whose text is not known, or "
            "gives a name to a token that the tokenizer lacks.",
            "Correct the template at the line that the message names, or give what it lacks in encode.chat.variables of "
            "params.yaml.",
        ),
        "TM305": ErrorCode(
            "a conversation does not fit its chat template",
            "The template refuses the conversation, or it cannot be told which tokens of it are to be learned: without "
            "`{% generation %}` in the template, the conversation up to each answer has to be written as the whole one begins.",
            "Mend the conversation at the message that is named. Otherwise put `{% generation %}` and `{% endgeneration %}` around "
            "what an assistant writes in the template, or take one of the named templates, which have them.",
        ),
        "TM401": ErrorCode(
            "git or DVC cannot do what is needed",
            "A command of git or a call of DVC failed, or the repository is in a state that does not allow the step. The "
            "message has their own words.",
            "Do what the message says. `tokenmill doctor` checks git, DVC and the project, and says how to mend what is wrong.",
        ),
        "TM402": ErrorCode(
            "another build is at work",
            "Only one process at a time builds a project. The message names the one that does, its machine and since when.",
            "Wait until it has ended, or run `tokenmill build --wait`, which waits for it. A lock of a process that was killed "
            "is free at once: there is nothing to delete.",
        ),
        "TM403": ErrorCode(
            "there is no such version",
            "The repository has no tag for the version, or for the stage, that was asked for.",
            "Take one of the versions that the message lists. In a clone, run `git fetch --tags` first.",
        ),
        "TM404": ErrorCode(
            "the project is not ready to be published",
            "A version is a commit with its data. Something is not committed, not built from what is committed, or the version "
            "is taken or lower than one that exists.",
            "Run `tokenmill build`, commit, and publish again, with a higher version if the message asks for one.",
        ),
        "TM405": ErrorCode(
            "the files are not those that were published",
            "What arrived differs from what the version's commit, its tag or its signature says, or a pinned tokenizer is "
            "another now. A remote, a cache or a tag was changed.",
            "Do not use the files. Ask whoever published them. For a change that was meant, run `tokenmill pin`.",
        ),
        "TM406": ErrorCode(
            "the directory for a version is not free",
            "`tokenmill fetch` overwrites nothing. The directory that it was to bring a version into holds files, or is a file.",
            "Name a directory that is not there yet, or an empty one; or move away what the message lists.",
        ),
        "TM501": ErrorCode(
            "the dataset does not hold what it says",
            "The token dataset, its manifest or its report is missing, damaged, or differs from the documents and the "
            "tokenizer.",
            "Run `tokenmill build`. If it says that nothing is to do, run `tokenmill build --rehash`, which reads files again "
            "that seem unchanged.",
        ),
        "TM502": ErrorCode(
            "the new documents drift",
            "The new documents are past a limit of the section refresh in params.yaml: they need more tokens for their text, "
            "are in scripts that the tokenizer did not see, or too many are bad. Nothing was committed or published.",
            "Look at the new documents. If they are as they should be, raise the limit, or train a tokenizer that knows them.",
        ),
        "TM503": ErrorCode(
            "a gate does not hold",
            "A measure of the dataset or its tokenizer is past a limit of validate.gates in params.yaml. The message has a table "
            "of what each broken gate wanted and what was found. Nothing was recorded of stage validate.",
            "Open data/report/report.html, which shows all measures. Change the documents or the parameters, or the gate if its "
            "limit is wrong.",
        ),
        "TM601": ErrorCode(
            "the disk is full",
            "A file could not be written, since its disk has no room left or your quota is used up. The outputs of the last "
            "build are whole.",
            "Make room and build again: finished units are kept. run.store_gb_max bounds the store of finished units, and "
            "`dvc gc --workspace` removes what DVC's cache holds of earlier builds.",
        ),
        "TM602": ErrorCode(
            "a file cannot be read or written",
            "The system refused a call: the file is missing, is not yours, or its disk is failing or read-only.",
            "Mend what the message names and run the command again.",
        ),
        "TM603": ErrorCode(
            "object storage cannot be used",
            "A URL like s3://bucket/path is wrong, its bucket is missing, there are no credentials for it or they may not do this, "
            "or the package that reads object storage is not installed. Nothing was written.",
            "Do what the message says. docs/guides/object-storage.md has the settings of the environment that name credentials, "
            "region and endpoint.",
        ),
        "TM701": ErrorCode(
            "a unit took too long",
            "A unit of work was not done after run.unit_timeout_s seconds. A very large document, or a slow regex as "
            "count.pattern, is the usual reason.",
            "Look at the documents of the unit that the message names, or raise run.unit_timeout_s.",
        ),
        "TM702": ErrorCode(
            "several units failed",
            "More than one unit of a stage failed. The message has the first twenty errors and the number of the "
            "others. Units that did not fail are kept.",
            "Mend the first error and build again: those that follow often have the same reason.",
        ),
        "TM703": ErrorCode(
            "Prefect's server cannot be used",
            "The server that PREFECT_API_URL names does not answer or is no Prefect server, or the one that a build starts for "
            "itself did not start: its database cannot be written to, or is of another Prefect.",
            "Start the server, correct or unset PREFECT_API_URL and PREFECT_HOME, or set run.engine: inline in params.yaml, which "
            "needs no server. docs/guides/prefect.md says where a build's own server keeps its records.",
        ),
        "TM704": ErrorCode(
            "the core was compiled from other sources",
            "The compiled part of tokenmill is older than the sources in core/ beside it. Its results could differ from what "
            "the sources say.",
            "Run `make core`.",
        ),
        "TM705": ErrorCode(
            "the cluster of run.engine",
            "With run.engine: dask or ray, units are done by the workers of a cluster. It cannot be reached, a worker of it "
            "cannot do the work (it does not see the project's folder, or has another tokenmill), or it was lost while it worked.",
            "Do what the message says, and build again: finished units are kept. docs/guides/clusters.md says what workers need.",
        ),
        "TM801": ErrorCode(
            "interrupted",
            "Ctrl-C ended the command. Finished units are kept, and no output is half written.",
            "Run the command again to go on.",
        ),
        "TM802": ErrorCode(
            "terminated",
            "A termination signal, the end of the terminal, or a cancellation in Prefect ended the command. Finished units are "
            "kept, and no output is half written.",
            "Run the command again to go on.",
        ),
        "TM900": ErrorCode(
            "an error without a code of its own",
            "A step stopped for a reason that tokenmill has no code for. A step of the project's own raises such errors.",
            "Read the message, which says what is wrong.",
        ),
        "TM901": ErrorCode(
            "a defect of tokenmill",
            "tokenmill ran into something that it did not expect. The lines above the message are the traceback.",
            "Report it with the whole output, and with what `tokenmill doctor` says. The data of the last build is whole.",
        ),
    }
)
"""By code, in order: TM0 the command line, TM1 settings, TM2 documents, TM3 tokenizers, TM4 versions, TM5 datasets, TM6 the
machine, TM7 how the build runs, TM8 signals, TM9 the rest."""
